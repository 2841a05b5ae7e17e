"""A put is seen whole or not at all, whoever looks meanwhile."""

from typing import Any

import pytest

from fixtures.connector import SLOT, Background, check_payload, payload, tensor_of
from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import claim
from harness.core.clock import Clock
from harness.core.judge import Judge
from harness.transfer.protocol import Connector
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=1, suite="connector")

LAG = 10
"""Ticks that the copy inside a put takes, half-way."""
THREADS, TURNS = 4, 25
SIZE = (64 << 10) + 1
"""Bytes of a payload that threads put: more than one page, so that a torn one shows."""


@claim("connector.store.unfinished", source="LMCache#207: a key that is visible before its store completes")
@requires(ConnectorCap.LAB)
def test_unfinished(engine: Any, carrier: Connector, judge: Judge, clock: Clock, seed: int) -> None:
    """While a payload is copied there is nothing under its key; then it is there whole."""
    putting = half_put(engine, carrier, clock, payload(seed))
    judge.taken(int(putting.running), "a put under way")
    judge.equal(carrier.get(*SLOT), None, "what get says while the payload is copied")
    judge.equal(carrier.holds(*SLOT), False, "held while the payload is copied")

    end_put(engine, putting)
    check_payload(judge, carrier.get(*SLOT), payload(seed), "payload after the put")


@claim("connector.store.replacing", source="LMCache#207, protocol: a second put takes the place of the first, all at once")
@requires(ConnectorCap.LAB)
def test_replacing(engine: Any, carrier: Connector, judge: Judge, clock: Clock, seed: int) -> None:
    """While a payload is copied that replaces another, the older one is got, whole; then the newer."""
    carrier.put(*SLOT, payload(seed))
    putting = half_put(engine, carrier, clock, payload(seed + 1))
    judge.taken(int(putting.running), "a put under way")
    check_payload(judge, carrier.get(*SLOT), payload(seed), "payload while it is being replaced", source="the first put")

    end_put(engine, putting)
    check_payload(judge, carrier.get(*SLOT), payload(seed + 1), "payload after the put", source="the second put")


@claim("connector.store.failed", source="nixl#2047, vllm#50754: a store that fails is told, and leaves nothing half-made")
@requires(ConnectorCap.LAB)
def test_failed(engine: Any, carrier: Connector, judge: Judge, seed: int) -> None:
    """A put that fails half-way raises, leaves the older payload in place, and the next put works."""
    carrier.put(*SLOT, payload(seed))
    before = dict(carrier.usage())
    engine.lab.fail_next("store")

    judge.refused(lambda: carrier.put(*SLOT, payload(seed + 1)), "a put whose copy fails")

    check_payload(judge, carrier.get(*SLOT), payload(seed), "payload after the put that failed", source="the first put")
    judge.equal(dict(carrier.usage()), before, "what is held after the put that failed")
    carrier.put(*SLOT, payload(seed + 2))
    check_payload(judge, carrier.get(*SLOT), payload(seed + 2), "payload after the next put", source="the third put")


@claim("connector.threads.keys", source="protocol: calls come from several threads; vllm#10583: requests in flight share state")
def test_threads_and_keys(carrier: Connector, judge: Judge, clock: Clock, seed: int) -> None:
    """Threads that put and get under keys of their own are each given their own payload, whole, every time."""
    found: dict[int, list[Any]] = {number: [] for number in range(THREADS)}

    def work(number: int) -> None:
        data = payload(seed + number, SIZE)
        for _ in range(TURNS):
            _, _, handle = carrier.put("0", "1", f"key-{number}", data)
            found[number].append(tensor_of(carrier.get("0", "1", f"key-{number}", handle)))
            carrier.done("0", "1", f"key-{number}", handle)

    for thread in [Background(clock, work, number) for number in range(THREADS)]:
        thread.result()
    for number in range(THREADS):
        judge.equal(len(found[number]), TURNS, f"payloads that thread {number} got")
        expected = payload(seed + number, SIZE)
        for got in found[number]:
            judge.same_bits(got, expected, f"payload of thread {number}", source="what it put", axes=("byte",))
    judge.equal(carrier.usage()["segments"], 0, "payloads held in the end")


@claim("connector.threads.one_key", source="protocol: a second put takes the place of the first, all at once")
@requires(ConnectorCap.MANY_READS)
def test_threads_and_one_key(carrier: Connector, judge: Judge, clock: Clock, seed: int) -> None:
    """Threads that put under one key replace each other's payloads whole: each get gives one of them, not a mixture."""
    sent = [payload(seed + number, SIZE + number) for number in range(THREADS)]
    _, _, handle = carrier.put(*SLOT, sent[0])
    putting = [Background(clock, lambda data: [carrier.put(*SLOT, data) for _ in range(TURNS)], data) for data in sent]
    found = [tensor_of(carrier.get(*SLOT, handle)) for _ in range(TURNS)]
    for thread in putting:
        thread.result()
    found.append(tensor_of(carrier.get(*SLOT, handle)))

    for got in found:
        judge.demand(got is not None, got="nothing under the key", expected="a payload, at every moment since the first put")
        which = got.numel() - SIZE
        judge.demand(0 <= which < THREADS, got=f"a payload of {got.numel()} bytes", expected=f"one of {SIZE} to {SIZE + THREADS - 1}")
        judge.same_bits(got, sent[which], "payload", source=f"what thread {which} put", axes=("byte",))
    judge.equal(carrier.usage()["segments"], 1, "payloads held in the end")


def half_put(engine: Any, carrier: Connector, clock: Clock, data: Any) -> Background:
    """A put in the background that has made half of its copy."""
    engine.lab.lag("store", LAG)
    putting = Background(clock, carrier.put, *SLOT, data)
    engine.lab.advance(LAG // 2)
    return putting


def end_put(engine: Any, putting: Background) -> None:
    """Let the other half be made."""
    engine.lab.advance(LAG)
    putting.result()
    engine.lab.lag("store", 0)
