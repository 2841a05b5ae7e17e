"""Faults that prove the proof: null faults, which no check may notice, and canaries, which many must."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.core.faults import Role, fault
from harness.transfer.faults.register import REFERENCE
from harness.transfer.protocol import KVPayload


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


@fault("connector/null", seam=f"{REFERENCE}.memory:MemoryConnector.get", role=Role.NULL)
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
        "connector.carry.kinds",
        "connector.carry.large",
        "connector.carry.unknown_key",
        "connector.carry.own_copy",
        "connector.keys.odd",
        "connector.keys.stages",
        "connector.keys.many",
        "connector.hold.many_reads",
        "connector.hold.readers",
        "connector.hold.done",
        "connector.hold.replaced",
        "connector.hold.discard_one",
        "connector.hold.reader_keeps",
        "connector.store.unfinished",
        "connector.store.replacing",
        "connector.store.failed",
        "connector.threads.keys",
        "connector.threads.one_key",
    ],
)
def connector_canary(original: Any, connector: Any, data: Any) -> bytes:
    """One bit of every payload is flipped as it is stored."""
    held = bytearray(original(connector, data))
    held[-1:] = bytes(byte ^ 1 for byte in held[-1:])
    return bytes(held)
