"""What a receiver takes for a payload, and what it tells of a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.transfer.faults.register import catalogued
from harness.transfer.protocol import Delivery, KVPayload, Outcome


@catalogued(
    "sender-endpoint-sticky",
    "manager:TransferManager._sender_of",
    claims=["transfer.endpoint.own_untouched", "transfer.endpoint.per_request"],
    source="vllm-omni update_sender_info (code; leak inferred), #2000 (review), #5138 (bot)",
)
def sender_endpoint_sticky(original: Any, manager: Any, endpoint: Any) -> Any:
    """The endpoint of a call is kept on the shared manager, and used where the next call names none."""
    if endpoint is not None:
        manager.endpoint = endpoint
    return manager.endpoint


@catalogued(
    "failed-load-counted",
    "receiver:Receiver._failure",
    claims=["transfer.failure.not_delivered", "transfer.failure.truncated", "transfer.failure.bit_flip", "transfer.failure.told"],
    source="dynamo#15079, vllm#20063; TensorRT-LLM#14633 (error overwritten by complete)",
)
def failed_load_counted(original: Any, receiver: Any, request_id: str, error: Exception) -> Delivery:
    """A failed transfer is counted as loaded: the request runs on whatever its pages held."""
    rows = torch.zeros(1, 1, 1)
    return Delivery(Outcome.HIT, KVPayload((rows,), (rows,)), rows.nbytes, 1, {"seq_len": 1})


@catalogued(
    "error-becomes-none",
    "receiver:Receiver._failure",
    claims=["transfer.failure.told"],
    source="vllm-omni kv_transfer_manager.py (code: blanket except returns None)",
)
def error_becomes_none(original: Any, receiver: Any, request_id: str, error: Exception) -> Delivery:
    """A transfer that failed reads as one that never came."""
    return Delivery(Outcome.MISS)


@catalogued(
    "metadata-slot-race",
    "receiver:Receiver._load",
    claims=["transfer.payload.metadata"],
    source="sglang#17259, #22716",
)
def metadata_slot_race(original: Any, receiver: Any, *order: Any) -> Any:
    """The metadata slot is read before this transfer has written it: it still holds the one before."""
    payload, metadata = original(receiver, *order)
    before = vars(receiver).get("slot", metadata)
    receiver.slot = metadata
    return payload, before


@catalogued(
    "recompute-wrong-offset",
    "manager:TransferManager._skip",
    claims=["transfer.pages.skip_after_failure"],
    source="vllm#49250, #49252; related local-inference-lab/vllm#191 (never wakes)",
)
def recompute_wrong_offset(original: Any, manager: Any, request_id: str, skip_tokens: int) -> int:
    """The count of tokens that a request had at its first try stays, though that try failed."""
    return vars(manager).setdefault("computed", {}).setdefault(request_id, skip_tokens)


@catalogued(
    "suffix-inserted-at-head",
    "receiver:Receiver._first_token",
    claims=["transfer.pages.suffix"],
    source="lightseekorg/tokenspeed#293 (comment)",
)
def suffix_inserted_at_head(original: Any, receiver: Any, skip: int) -> int:
    """Pages fetched after a partial hit are stored as the first ones."""
    return 0


@catalogued(
    "dtype-mismatch-accepted",
    "codec:PayloadCodec._check_layout",
    claims=["transfer.layout.other_dtype"],
    source="sglang#19398; related vllm#54338",
)
def dtype_mismatch_accepted(original: Any, codec: Any, tensors: Any, heads: int) -> None:
    """Bytes are viewed in the receiver's dtype, whatever they were sent as."""
    own = codec._layout.dtype
    tensors[:] = [replace(item, tensor=_viewed(item.tensor, own)) for item in tensors]


def _viewed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.view(dtype) if tensor.dtype.itemsize == dtype.itemsize else tensor
