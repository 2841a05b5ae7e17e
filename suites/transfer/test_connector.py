"""What carries bytes under a manager: gives back what was put, under its own key, until it is discarded."""

from typing import Any

import pytest
import torch

from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=1, suite="connector")


def payload(seed: int, size: int = 1000) -> torch.Tensor:
    """Seeded bytes; the size is no multiple of anything a connector may pad to."""
    return torch.randint(0, 256, (size + 1,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def tensor_of(found: tuple[Buffer, int] | None) -> torch.Tensor | None:
    """What a get gave, as uint8[n]; copied, because a buffer may be read-only."""
    return None if found is None else torch.frombuffer(bytearray(byte_view(found[0])), dtype=torch.uint8)


@claim("connector.carry.bits", source="DESIGN: put gives (ok, size, handle), get gives (data, size) or None")
def test_bits(engine: Any, judge: Judge, seed: int) -> None:
    """What was put is got back bit for bit, with its size."""
    carrier = engine.connector()
    data = payload(seed)

    ok, size, handle = carrier.put("0", "1", "key", data)
    judge.equal((ok, size), (True, data.numel()), "what put says")
    found = carrier.get("0", "1", "key", handle)

    judge.same_bits(tensor_of(found), data, "payload", source="what was put", axes=("byte",))
    judge.equal(found[1], data.numel(), "size that get says")
    carrier.discard("0", "1", "key")
    carrier.close()


@claim("connector.carry.unknown_key", source="DESIGN: get never waits; None is how nothing looks")
def test_unknown_key(engine: Any, judge: Judge, seed: int) -> None:
    """A key that nothing was put under gives None, and so does a key of another pair of stages."""
    carrier = engine.connector()
    carrier.put("0", "1", "key", payload(seed))

    for place in (("0", "1", "other"), ("1", "0", "key"), ("0", "2", "key")):
        judge.demand(carrier.get(*place) is None, got=f"a payload for {place}", expected="None: nothing was put there")
    judge.same_bits(tensor_of(carrier.get("0", "1", "key")), payload(seed), "payload", source="what was put", axes=("byte",))
    carrier.close()


@claim("connector.carry.own_copy", source="LMCache#207: a payload must be whole when it is seen, and stay so")
def test_own_copy(engine: Any, judge: Judge, seed: int) -> None:
    """What the caller does to its buffer after the put does not reach the payload."""
    carrier = engine.connector()
    data = payload(seed)
    expected = data.clone()
    carrier.put("0", "1", "key", data)

    data.add_(1)
    judge.differ(data, expected, "the caller's buffer before and after it was changed")

    judge.same_bits(tensor_of(carrier.get("0", "1", "key")), expected, "payload", source="what was put", axes=("byte",))
    carrier.close()


@claim("connector.hold.discard", source="vllm-omni#4414, #4349: segments that nobody frees")
def test_discard(engine: Any, judge: Judge, seed: int) -> None:
    """A discarded payload is gone and its memory is given back; discarding it again does nothing."""
    carrier = engine.connector()
    before = dict(carrier.usage())
    carrier.put("0", "1", "key", payload(seed))
    judge.demand(carrier.usage()["bytes"] > before["bytes"], got="no bytes held", expected="bytes held after a put")

    for _ in range(2):
        carrier.discard("0", "1", "key")
        judge.equal(carrier.get("0", "1", "key"), None, "what get says after the discard")
        judge.equal(dict(carrier.usage()), before, "what the connector holds after the discard")
    carrier.close()


@claim("connector.hold.many_reads", source="vllm-omni#3583: the first reader deletes what others still need")
@requires(ConnectorCap.MANY_READS)
def test_many_reads(engine: Any, judge: Judge, seed: int) -> None:
    """A payload can be got again until it is discarded, with the same bits."""
    carrier = engine.connector()
    carrier.put("0", "1", "key", payload(seed))

    for reader in (1, 2, 3):
        judge.same_bits(
            tensor_of(carrier.get("0", "1", "key")), payload(seed), f"reader {reader}'s payload", source="what was put", axes=("byte",)
        )
    carrier.close()


@claim("connector.hold.replaced", source="DESIGN: one key, one payload")
def test_replaced(engine: Any, judge: Judge, seed: int) -> None:
    """A second put under a key replaces the first, bits and size, and holds no more than one payload."""
    carrier = engine.connector()
    carrier.put("0", "1", "key", payload(seed, size=2000))
    carrier.put("0", "1", "key", payload(seed + 1))
    judge.equal(carrier.usage()["segments"], 1, "payloads held under one key")

    found = carrier.get("0", "1", "key")

    judge.same_bits(tensor_of(found), payload(seed + 1), "payload", source="the second put", axes=("byte",))
    carrier.close()


@claim("connector.hold.discard_one", source="sglang#24845 (comment): what matches by prefix reaches others")
def test_discard_one(engine: Any, judge: Judge, seed: int) -> None:
    """Discarding one payload leaves those under other keys, longer keys and other stages, and their bytes are counted."""
    carrier = engine.connector()
    others = [("0", "1", "key2"), ("0", "1", "ke"), ("1", "2", "key")]
    for number, place in enumerate([("0", "1", "key"), *others]):
        carrier.put(*place, payload(seed + number, size=100 + number))
    carrier.discard("0", "1", "key")

    held = carrier.usage()
    judge.equal(held["segments"], len(others), "payloads held")
    sizes = sum(payload(seed + 1 + i, size=101 + i).numel() for i in range(len(others)))
    judge.demand(held["bytes"] >= sizes, got=f"{held['bytes']} bytes held", expected=f"at least the {sizes} that were put")
    for number, place in enumerate(others, start=1):
        expected = payload(seed + number, size=100 + number)
        judge.same_bits(tensor_of(carrier.get(*place)), expected, f"payload at {place}", source="what was put", axes=("byte",))
    carrier.close()
