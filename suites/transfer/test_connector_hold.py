"""A payload is held until its readers are done with it, it is replaced or discarded; a reader keeps what it was given."""

import pytest

from fixtures.connector import SLOT, check_payload, payload, tensor_of
from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Connector
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=1, suite="connector")

REUSES = 40
"""Puts after a payload was freed: more than any pool of ours keeps."""


@claim("connector.hold.discard", source="vllm-omni#4414, #4349: segments that nobody frees")
def test_discard(carrier: Connector, judge: Judge, seed: int) -> None:
    """A discarded payload is gone and its memory is given back; discarding it again does nothing."""
    before = dict(carrier.usage())
    _, _, handle = carrier.put(*SLOT, payload(seed))
    judge.demand(carrier.usage()["bytes"] > before["bytes"], got="no bytes held", expected="bytes held after a put")

    for _ in range(2):
        carrier.discard(*SLOT, handle)
        judge.equal(carrier.get(*SLOT, handle), None, "what get says after the discard")
        judge.equal(dict(carrier.usage()), before, "what the connector holds after the discard")


@claim("connector.hold.many_reads", source="vllm-omni#3583: the first reader deletes what others still need")
@requires(ConnectorCap.MANY_READS)
def test_many_reads(carrier: Connector, judge: Judge, seed: int) -> None:
    """A payload can be got again until it is discarded, with the same bits."""
    _, _, handle = carrier.put(*SLOT, payload(seed))

    for reader in (1, 2, 3):
        check_payload(judge, carrier.get(*SLOT, handle), payload(seed), f"reader {reader}'s payload")


@claim("connector.hold.readers", source="vllm-omni#3583: payload deleted after the first read although several readers need it")
@requires(ConnectorCap.READERS)
def test_readers(carrier: Connector, judge: Judge, seed: int) -> None:
    """A payload put for several readers is held until the last of them is done, and no longer."""
    before = dict(carrier.usage())
    _, _, handle = carrier.put(*SLOT, payload(seed), readers=3)

    for reader in (1, 2, 3):
        judge.equal(carrier.holds(*SLOT), True, f"held while reader {reader} is not done")
        check_payload(judge, carrier.get(*SLOT, handle), payload(seed), f"reader {reader}'s payload")
        carrier.done(*SLOT, handle)
    judge.equal(carrier.get(*SLOT, handle), None, "what get says when all are done")
    judge.equal(carrier.holds(*SLOT), False, "held when all are done")
    judge.equal(dict(carrier.usage()), before, "what the connector holds when all are done")


@claim("connector.hold.named_readers", source="protocol: saying it twice of one payload counts once")
@requires(ConnectorCap.READERS)
def test_named_readers(carrier: Connector, judge: Judge, seed: int) -> None:
    """A reader that says twice that it is done counts once, and counts anew for the next payload under the key, however its name ends."""
    first, second = "reader " * 40 + "first", "reader " * 40 + "second"
    for use, replaced in enumerate((False, False, True)):
        data = payload(seed + use)
        _, _, handle = carrier.put(*SLOT, data, 2)
        for _ in (1, 2, 3):
            carrier.done(*SLOT, handle, first)
        if replaced:
            # Of the payload that takes its place nobody has said anything.
            _, _, handle = carrier.put(*SLOT, data, 2)
            carrier.done(*SLOT, handle, first)
        check_payload(judge, carrier.get(*SLOT, handle), data, f"payload {use} after one of two readers was done")
        carrier.done(*SLOT, handle, second)
        judge.equal(carrier.get(*SLOT, handle), None, f"payload {use} after both readers were done")


@claim("connector.hold.done", source="vllm-omni#4414: what was read and is never freed")
def test_done(carrier: Connector, judge: Judge, seed: int) -> None:
    """A payload that has one reader is freed when that one is done; being done with nothing does nothing."""
    before = dict(carrier.usage())
    for turn in (1, 2):
        _, _, handle = carrier.put(*SLOT, payload(seed))
        check_payload(judge, carrier.get(*SLOT, handle), payload(seed), f"payload of turn {turn}")
        carrier.done(*SLOT, handle)
        judge.equal(dict(carrier.usage()), before, f"what the connector holds after turn {turn}")
        carrier.done(*SLOT, handle)
    judge.equal(carrier.get(*SLOT), None, "what get says in the end")


@claim("connector.hold.replaced", source="DESIGN: one key, one payload")
def test_replaced(carrier: Connector, judge: Judge, seed: int) -> None:
    """A second put under a key replaces the first, bits and size, and holds no more than one payload."""
    carrier.put(*SLOT, payload(seed, size=2001))
    _, _, handle = carrier.put(*SLOT, payload(seed + 1))
    judge.equal(carrier.usage()["segments"], 1, "payloads held under one key")

    check_payload(judge, carrier.get(*SLOT, handle), payload(seed + 1), "payload", source="the second put")


@claim("connector.hold.discard_one", source="sglang#24845 (comment): what matches by prefix reaches others")
def test_discard_one(carrier: Connector, judge: Judge, seed: int) -> None:
    """Discarding one payload leaves those under other keys, longer keys and other stages, and their bytes are counted."""
    others = [("0", "1", "key2"), ("0", "1", "ke"), ("1", "2", "key")]
    sent = {place: payload(seed + number, size=101 + number) for number, place in enumerate([SLOT, *others])}
    handles = {place: carrier.put(*place, data)[2] for place, data in sent.items()}
    carrier.discard(*SLOT, handles[SLOT])

    held = carrier.usage()
    judge.equal(held["segments"], len(others), "payloads held")
    sizes = sum(sent[place].numel() for place in others)
    judge.demand(held["bytes"] >= sizes, got=f"{held['bytes']} bytes held", expected=f"at least the {sizes} that were put")
    for place in others:
        check_payload(judge, carrier.get(*place, handles[place]), sent[place], f"payload at {place}")


@claim("connector.hold.told", source="protocol: holds says whether a payload that was put here is still held")
def test_told(carrier: Connector, judge: Judge, seed: int) -> None:
    """`holds` is true of what was put and not freed since, and of nothing else."""
    judge.equal(carrier.holds(*SLOT), False, "held before the put")
    _, _, handle = carrier.put(*SLOT, payload(seed))
    judge.equal(carrier.holds(*SLOT), True, "held after the put")
    judge.equal(carrier.holds("0", "1", "other"), False, "held under another key")
    carrier.discard(*SLOT, handle)
    judge.equal(carrier.holds(*SLOT), False, "held after the discard")


@claim("connector.hold.reader_keeps", source="Mooncake#850, vllm#53095: pages freed, and used again, under a slow reader")
def test_reader_keeps(carrier: Connector, judge: Judge, seed: int) -> None:
    """What a reader was given stays as it was while it holds it: after it is replaced, discarded, after many other puts, after close."""
    first = payload(seed)
    _, _, handle = carrier.put(*SLOT, first)
    kept = carrier.get(*SLOT, handle)
    check_payload(judge, kept, first, "payload when it was got")
    for number, size in enumerate((len(first), len(first) - 1, len(first) + 1), start=1):
        _, _, handle = carrier.put(*SLOT, payload(seed + number, size))
        check_payload(judge, kept, first, f"payload after one of {size} bytes took its place")
    carrier.discard(*SLOT, handle)
    check_payload(judge, kept, first, "payload after the discard")

    for turn in range(1, REUSES + 1):
        _, _, handle = carrier.put(*SLOT, payload(seed + turn))
        check_payload(judge, carrier.get(*SLOT, handle), payload(seed + turn), f"payload of turn {turn}")
        judge.differ(payload(seed + turn), first, "the first payload and a later one")
        carrier.done(*SLOT, handle)
        check_payload(judge, kept, first, f"first payload after turn {turn}")
    carrier.close()
    check_payload(judge, kept, first, "first payload after close")


@claim("connector.hold.replaced_keeps", source="protocol: the data is the caller's to read for as long as it holds it")
def test_replaced_keeps(carrier: Connector, judge: Judge, seed: int) -> None:
    """What was got where it was put, without naming a sender, stays as it was when another payload takes its place, of any size."""
    first = payload(seed)
    carrier.put(*SLOT, first)
    kept = carrier.get(*SLOT)
    check_payload(judge, kept, first, "payload when it was got")
    for number, size in enumerate((len(first), len(first) - 1, len(first) + 1), start=1):
        carrier.put(*SLOT, payload(seed + number, size))
        check_payload(judge, kept, first, f"payload after one of {size} bytes took its place")


@claim("connector.hold.slice_keeps", source="a receiver builds its tensors as views of what it was given")
def test_slice_keeps(carrier: Connector, judge: Judge, seed: int) -> None:
    """A part cut out of what a reader was given keeps the whole readable, when only the part is held."""
    first = payload(seed)
    _, _, handle = carrier.put(*SLOT, first)
    found = carrier.get(*SLOT, handle)
    part = found[0][100:200] if found else b""
    del found
    carrier.done(*SLOT, handle)

    for turn in range(1, REUSES + 1):
        _, _, handle = carrier.put(*SLOT, payload(seed + turn))
        carrier.done(*SLOT, handle)
    judge.same_bits(tensor_of((part, 100)), first[100:200], "part of the first payload", source="what was put", axes=("byte",))


@claim("connector.hold.close", source="vllm-omni#4414: segments outlive their process")
def test_close(carrier: Connector, judge: Judge, seed: int) -> None:
    """A closed connector holds nothing and finds nothing; closing it again does nothing."""
    _, _, handle = carrier.put(*SLOT, payload(seed))
    judge.equal(carrier.usage()["segments"], 1, "payloads held before close")

    for _ in range(2):
        carrier.close()
        judge.equal({name: carrier.usage()[name] for name in ("segments", "bytes")}, {"segments": 0, "bytes": 0}, "held after close")
        judge.equal(carrier.holds(*SLOT), False, "held after close")
        judge.equal(carrier.get(*SLOT, handle), None, "what get says after close")
