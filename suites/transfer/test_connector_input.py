"""Bad input is refused with an error that names it, damage is noticed, and neither leaves anything behind."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fixtures.connector import SLOT, check_payload, payload
from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Connector
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=1, suite="connector")

LARGE = (1 << 20) + 1
"""Bytes: more than any part of a payload that a connector might take for the whole."""

LIMIT = 4096
"""Bytes of the largest payload, where a test sets it."""


@claim("connector.input.readers", source="protocol: bad input is a ValueError")
@requires(ConnectorCap.READERS)
def test_readers(carrier: Connector, judge: Judge, seed: int) -> None:
    """A payload for no reader, or fewer, is refused, and nothing is held."""
    for readers in (0, -1):
        judge.refused(lambda n=readers: carrier.put(*SLOT, payload(seed), readers=n), f"a put for {readers} readers", (ValueError,))
        judge.equal((carrier.get(*SLOT), carrier.usage()["segments"]), (None, 0), f"found and held after a put for {readers} readers")


@claim("connector.input.tensors", source="protocol: a carried tensor is contiguous, one-dimensional and uint8")
def test_tensors(carrier: Connector, judge: Judge, seed: int) -> None:
    """A tensor of another dtype or shape, or one with gaps, is refused, and nothing is held."""
    data = payload(seed, 1000)
    for what, tensor in {"float32": data.to(torch.float32), "two dimensions": data.view(10, 100), "gaps": data[::2]}.items():
        judge.refused(lambda bad=tensor: carrier.put(*SLOT, bad), f"a tensor with {what}", (ValueError,))
        judge.equal((carrier.get(*SLOT), carrier.usage()["segments"]), (None, 0), f"found and held after a tensor with {what}")


@claim("connector.input.limit", source="spec: sizes are bounded; an oversize payload is a clear error")
@requires(ConnectorCap.LIMIT)
def test_limit(build_engine: Callable[..., Any], judge: Judge, seed: int) -> None:
    """A payload of the largest size is carried; one byte more is refused, the limit is named, and the older payload stays."""
    carrier = build_engine(limit=str(LIMIT)).connector()
    largest = payload(seed, LIMIT)
    _, _, handle = carrier.put(*SLOT, largest)
    before = dict(carrier.usage())

    said = judge.refused(lambda: carrier.put(*SLOT, payload(seed, LIMIT + 1)), "a payload of one byte more", (ValueError,))

    judge.demand(str(LIMIT) in said, got=said, expected=f"an error that names the limit of {LIMIT} bytes")
    check_payload(judge, carrier.get(*SLOT, handle), largest, "payload of the largest size")
    judge.equal(dict(carrier.usage()), before, "what is held after the refusal")
    carrier.close()


@claim("connector.integrity.damage", source="Mooncake#3003 (CRC-64), vllm#57912 (CRC32C): integrity checks locate corruption")
@requires(ConnectorCap.INTEGRITY)
@requires(ConnectorCap.LAB)
def test_damage(engine: Any, carrier: Connector, judge: Judge, seed: int) -> None:
    """A payload in which one bit changed on its way is an error and no payload; the next one under the key is whole."""
    for size in (1001, LARGE):
        engine.lab.fail_next("damage")
        _, _, handle = carrier.put(*SLOT, payload(seed, size))
        for reader in (1, 2):
            judge.refused(lambda handle=handle: carrier.get(*SLOT, handle), f"reader {reader} of a damaged payload of {size} bytes")
    _, _, handle = carrier.put(*SLOT, payload(seed + 1))
    check_payload(judge, carrier.get(*SLOT, handle), payload(seed + 1), "payload put next")
