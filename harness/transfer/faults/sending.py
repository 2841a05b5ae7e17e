"""What a sender holds, for whom and how long, and where it listens."""

from __future__ import annotations

import logging
import threading
from typing import Any

import torch

from harness.core.clock import TICK
from harness.transfer.faults.register import catalogued
from harness.transfer.protocol import KVPayload

log = logging.getLogger(__name__)


@catalogued(
    "send-error-not-told",
    "sender:Sender._publish",
    claims=["transfer.send.put_fails"],
    source="vllm#50754, TensorRT-LLM#12542, nixl#2047 (stall never reported)",
)
def send_error_not_told(original: Any, sender: Any, *shard: Any) -> None:
    """A payload that could not be posted is logged, and the sender goes on."""
    try:
        original(sender, *shard)
    except Exception as error:  # noqa: BLE001 (it is the fault)
        log.debug("send failed: %s", error)


@catalogued(
    "request-id-reuse",
    "sender:Sender._is_live",
    claims=["transfer.send.live_id"],
    source="vllm#10583, #27987",
)
def request_id_reuse(original: Any, sender: Any, request_id: str) -> bool:
    """Whatever comes under a client's id takes the place of what is in flight under it."""
    return False


@catalogued(
    "source-evicted-before-send",
    "manager:TransferManager.send",
    claims=["transfer.payload.pages_untouched"],
    source="TensorRT-LLM#12540, #12641",
)
def source_evicted_before_send(original: Any, manager: Any, *request: Any, **how: Any) -> None:
    """A send returns before it has read the blocks, and does not pin them until it has."""
    joined = threading.Event()

    def later() -> None:
        with manager._clock.participant():
            joined.set()
            manager._clock.wait(lambda: False, TICK)
            original(manager, *request, **how)

    threading.Thread(target=later, daemon=True).start()
    joined.wait()


@catalogued(
    "lease-expired-read-ok",
    "sender:Sender._expire",
    claims=["transfer.lease.ended"],
    source="Mooncake#850, #778; aws-samples/aws-do-eks#84 (8 of 42 requests); vllm#53095 (lease not renewed)",
)
def lease_expired_read_ok(original: Any, sender: Any, request_id: str) -> None:
    """At the end of a lease its pages go to others, and the descriptor can still be read: it gives what lies there now."""
    layout = sender._codec._layout
    rows = tuple(torch.ones(layout.block_size, layout.heads, layout.head_dim, dtype=layout.dtype) for _ in range(layout.layers))
    for shard in sender._addresses.sent(request_id):
        sender._publish(request_id, shard, sender._encoded(request_id, KVPayload(rows, rows), layout.block_size, shard.piece), 1)


@catalogued(
    "first-reader-deletes",
    "memory:MemoryConnector.done",
    claims=["transfer.readers.each"],
    source="vllm-omni#3583",
)
def first_reader_deletes(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, *reader: Any) -> None:
    """The first reader that is done frees the payload for all."""
    connector.discard(from_stage, to_stage, key)


@catalogued(
    "rank-key-constant",
    "shards:Addressing.key",
    claims=["transfer.role.own_shard"],
    source="vllm-omni#5650",
)
def rank_key_constant(original: Any, addresses: Any, request_id: str, piece: Any) -> str:
    """Every rank builds its keys as rank 0."""
    return f"kv/0-0/{request_id}"


@catalogued(
    "port-collision",
    "shards:Addressing._listens",
    claims=["transfer.tp.own_port"],
    source="vllm-omni#5650",
)
def port_collision(original: Any, addresses: Any, base: Any, rank: int) -> Any:
    """Every rank listens at the port of rank 0."""
    return base


@catalogued(
    "source-rank-dropped",
    "shards:Addressing.received",
    claims=["transfer.tp.join", "transfer.tp.own_port"],
    source="vllm-omni#2705 (bot)",
)
def source_rank_dropped(original: Any, addresses: Any, request_id: str, base: Any) -> Any:
    """Only the first sender rank is asked."""
    return original(addresses, request_id, base)[:1]
