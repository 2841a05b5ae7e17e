"""What carries bytes under a manager gives back what was put, under its own key and no other."""

from typing import Any

import pytest

from fixtures.connector import SLOT, check_payload, payload
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Connector
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=1, suite="connector")

LARGE = (3 << 20) + 1
"""Bytes: larger than buffers and pieces that a connector may carry in, and no multiple of a page."""
MANY = 200
ODD_KEYS = {
    "empty": "",
    "one space": " ",
    "space behind": "key ",
    "slash before": "/key",
    "slash behind": "key/",
    "path": "kv/0/key",
    "parent": "..",
    "path up": "../key",
    "path up and down": "kv/../key",
    "dot": "./key",
    "upper case": "KEY",
    "not ASCII": "schlüssel-鍵-🗝",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "new line": "key\n",
    "null": "key\0",
    "percent": "key%20",
    "wildcard": "k*",
    "400 characters": "k" * 400,
    "401 characters": "k" * 401,
}
"""Texts that a connector must not take for a path, a pattern or one another; all of them beside `key`."""


@claim("connector.carry.bits", source="DESIGN: put gives (ok, size, handle), get gives (data, size) or None")
def test_bits(carrier: Connector, judge: Judge, seed: int) -> None:
    """What was put is got back bit for bit, with its size."""
    data = payload(seed)

    ok, size, handle = carrier.put(*SLOT, data)
    judge.equal((ok, size), (True, data.numel()), "what put says")

    check_payload(judge, carrier.get(*SLOT, handle), data, "payload")
    carrier.discard(*SLOT)


@claim("connector.carry.kinds", source="protocol: bytes, bytearray, memoryview, or a one-dimensional uint8 tensor")
def test_kinds(carrier: Connector, judge: Judge, seed: int) -> None:
    """Every kind of buffer that the protocol names is carried with the same bits."""
    data = payload(seed)
    raw = data.numpy().tobytes()
    for buffer in (raw, bytearray(raw), memoryview(raw), data):
        _, _, handle = carrier.put(*SLOT, buffer)
        check_payload(judge, carrier.get(*SLOT, handle), data, f"payload put as {type(buffer).__name__}")


@claim("connector.carry.large", source="a payload is larger than a page, a pipe and a socket buffer")
def test_large(carrier: Connector, judge: Judge, seed: int) -> None:
    """A payload of some MiB that is no multiple of a page arrives whole."""
    data = payload(seed, LARGE)
    _, _, handle = carrier.put(*SLOT, data)

    check_payload(judge, carrier.get(*SLOT, handle), data, "payload")


@claim("connector.carry.empty", source="a request that has nothing to send is not one that was never sent")
def test_empty(carrier: Connector, judge: Judge) -> None:
    """An empty payload is carried as one of no bytes, and told from none."""
    judge.equal(carrier.get(*SLOT), None, "what get says before the put")
    ok, size, handle = carrier.put(*SLOT, b"")
    judge.equal((ok, size), (True, 0), "what put says")
    judge.equal(carrier.usage()["segments"], 1, "payloads held")

    check_payload(judge, carrier.get(*SLOT, handle), payload(0, 0), "payload")


@claim("connector.carry.unknown_key", source="DESIGN: get never waits; None is how nothing looks")
def test_unknown_key(carrier: Connector, judge: Judge, seed: int) -> None:
    """A key that nothing was put under gives None, and so does a key of another pair of stages."""
    _, _, handle = carrier.put("0", "1", "key", payload(seed))

    for place in (("0", "1", "other"), ("1", "0", "key"), ("0", "2", "key")):
        judge.demand(carrier.get(*place, handle) is None, got=f"a payload for {place}", expected="None: nothing was put there")
    check_payload(judge, carrier.get("0", "1", "key", handle), payload(seed), "payload")


@claim("connector.carry.own_copy", source="LMCache#207: a payload must be whole when it is seen, and stay so")
def test_own_copy(carrier: Connector, judge: Judge, seed: int) -> None:
    """What the caller does to its buffer after the put does not reach the payload."""
    data = payload(seed)
    expected = data.clone()
    _, _, handle = carrier.put(*SLOT, data)

    data.add_(1)
    judge.differ(data, expected, "the caller's buffer before and after it was changed")

    check_payload(judge, carrier.get(*SLOT, handle), expected, "payload")


@claim("connector.keys.odd", source="request ids are a client's text: vllm-omni's keys become file names")
def test_odd_keys(carrier: Connector, judge: Judge, seed: int) -> None:
    """Any text is a key of its own: empty, long, a path, a pattern, of any alphabet."""
    keys = {"plain": "key", **ODD_KEYS}
    sent = {name: payload(seed + number, 50 + number) for number, name in enumerate(keys)}
    handles = {name: carrier.put("0", "1", key, sent[name])[2] for name, key in keys.items()}
    judge.equal(carrier.usage()["segments"], len(keys), "payloads held")

    for name, key in keys.items():
        check_payload(judge, carrier.get("0", "1", key, handles[name]), sent[name], f"payload under the key {name!r}")
    for name, key in keys.items():
        carrier.discard("0", "1", key, handles[name])
        judge.equal(carrier.get("0", "1", key, handles[name]), None, f"what get says after the key {name!r} was discarded")


@claim("connector.keys.stages", source="a boundary is named by two stages: joined into one text, 0 and 11 are 01 and 1")
def test_stages(carrier: Connector, judge: Judge, seed: int) -> None:
    """Stages and key are told apart wherever one ends and the next begins."""
    places = [("0", "11", "key"), ("01", "1", "key"), ("0", "1", "1key"), ("0", "1", "1/key"), ("0", "1/1", "key"), ("0_1", "1", "key")]
    handles = [carrier.put(*place, payload(seed + number))[2] for number, place in enumerate(places)]

    for number, place in enumerate(places):
        check_payload(judge, carrier.get(*place, handles[number]), payload(seed + number), f"payload at {place}")


@claim("connector.keys.many", source="sglang#17259: a slot used again before it was read gives another request's bytes")
def test_many_keys(carrier: Connector, judge: Judge, seed: int) -> None:
    """Some hundred payloads are held at a time, each under its own key."""
    handles: list[Any] = [carrier.put("0", "1", f"key-{number}", payload(seed + number, 100 + number))[2] for number in range(MANY)]
    judge.equal(carrier.usage()["segments"], MANY, "payloads held")

    for number in range(MANY):
        found = carrier.get("0", "1", f"key-{number}", handles[number])
        check_payload(judge, found, payload(seed + number, 100 + number), f"payload {number}")
