"""Catalogued faults of the reference transfer engine: ways in which a real KV transfer manager was wrong. Kind B of the catalogue.

Each breaks one seam and is caught through the public protocol. The null fault and the canaries stand at the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.core.faults import Role, fault
from harness.transfer import connector_faults as connector_faults
from harness.transfer.protocol import Delivery, KVPayload, Outcome

REFERENCE = "harness.transfer.reference"


@fault(
    "transfer/prefetch-dedup-stale",
    seam=f"{REFERENCE}.prefetch:PrefetchTable._tracks",
    claims=["transfer.lifecycle.reused_id"],
    source="vllm-omni#4772 (review shows the skip; fault inferred)",
)
def prefetch_dedup_stale(original: Any, table: Any, request_id: str) -> bool:
    """The set of enqueued ids is never pruned, so a reused id is taken for one under way."""
    enqueued = vars(table).setdefault("enqueued", set())
    known = request_id in enqueued or original(table, request_id)
    enqueued.add(request_id)
    return known


@fault(
    "transfer/prefetch-not-cancelled",
    seam=f"{REFERENCE}.prefetch:PrefetchTable._cancel",
    claims=["transfer.lifecycle.abort_not_fetched"],
    source="vllm-omni#4772 (review: cancel() never called), sglang#16369",
)
def prefetch_not_cancelled(original: Any, table: Any, job: Any) -> bool:
    """A dropped request stays in the worker's queue and is fetched all the same."""
    return False


@fault(
    "transfer/sender-endpoint-sticky",
    seam=f"{REFERENCE}.manager:TransferManager._sender_of",
    claims=["transfer.endpoint.own_untouched", "transfer.endpoint.per_request"],
    source="vllm-omni update_sender_info (code; leak inferred), #2000 (review), #5138 (bot)",
)
def sender_endpoint_sticky(original: Any, manager: Any, endpoint: Any) -> Any:
    """The endpoint of a call is kept on the shared manager, and used where the next call names none."""
    if endpoint is not None:
        manager.endpoint = endpoint
    return manager.endpoint


@fault(
    "transfer/failed-load-counted",
    seam=f"{REFERENCE}.receiver:Receiver._failure",
    claims=["transfer.failure.not_delivered", "transfer.failure.truncated", "transfer.failure.bit_flip", "transfer.failure.told"],
    source="dynamo#15079, vllm#20063; TensorRT-LLM#14633 (error overwritten by complete)",
)
def failed_load_counted(original: Any, receiver: Any, request_id: str, error: Exception) -> Delivery:
    """A failed transfer is counted as loaded: the request runs on whatever its pages held."""
    rows = torch.zeros(1, 1, 1)
    return Delivery(Outcome.HIT, KVPayload((rows,), (rows,)), rows.nbytes, 1, {"seq_len": 1})


@fault(
    "transfer/layer-order",
    seam=f"{REFERENCE}.codec:PayloadCodec._in_order",
    claims=["transfer.payload.layer_order"],
    source="TensorRT-LLM#16429; name-sort variant local-inference-lab/vllm#454 (bot)",
)
def layer_order(original: Any, codec: Any, tensors: Any) -> list[Any]:
    """Layers are put in the order of their sorted names, where 10 comes before 2."""
    return sorted(tensors, key=lambda item: item.name)


@fault("transfer/null", seam=f"{REFERENCE}.codec:PayloadCodec.decode", role=Role.NULL)
def null(original: Any, codec: Any, *payload: Any) -> Any:
    """Nothing is wrong."""
    return original(codec, *payload)


@fault(
    "transfer/canary",
    seam=f"{REFERENCE}.codec:PayloadCodec._payload",
    role=Role.CANARY,
    claims=[
        "transfer.prefetch.delivers",
        "transfer.prefetch.started_twice",
        "transfer.prefetch.needs_endpoint",
        "transfer.prefetch.start_drops_leftover",
        "transfer.prefetch.apply",
        "transfer.prefetch.consume_waits",
        "transfer.endpoint.own_untouched",
        "transfer.endpoint.per_request",
        "transfer.payload.bits",
        "transfer.payload.received_bits",
        "transfer.payload.layer_order",
        "transfer.payload.block_table",
        "transfer.lifecycle.delivered_once",
        "transfer.lifecycle.reused_id",
        "transfer.lifecycle.abort_leaves_others",
        "transfer.failure.next_works",
    ],
)
def canary(original: Any, codec: Any, ordered: Any) -> KVPayload:
    """One bit of every delivered payload is flipped."""
    payload = original(codec, ordered)
    last = payload.values[-1].clone()
    last.view(-1).view(torch.uint8)[-1] ^= 1
    return replace(payload, values=(*payload.values[:-1], last))


@fault("connector/null", seam=f"{REFERENCE}.memory:MemoryConnector.get", role=Role.NULL, engine="connector/memory")
def connector_null(original: Any, connector: Any, *where: Any) -> Any:
    """Nothing is wrong."""
    return original(connector, *where)


@fault(
    "connector/canary",
    seam=f"{REFERENCE}.memory:MemoryConnector._copy",
    engine="connector/memory",
    role=Role.CANARY,
    claims=[
        "connector.carry.bits",
        "connector.carry.unknown_key",
        "connector.carry.own_copy",
        "connector.hold.many_reads",
        "connector.hold.replaced",
    ],
)
def connector_canary(original: Any, connector: Any, data: Any) -> bytes:
    """One bit of every payload is flipped as it is stored."""
    held = bytearray(original(connector, data))
    held[-1] ^= 1
    return bytes(held)
