"""A connector between two processes: payloads arrive whole, and a process that is killed costs nobody a wrong byte."""

from collections.abc import Callable
from typing import Any

import pytest

from fixtures.connector import SLOT, check_payload
from fixtures.processes import TwoProcesses, answer_or_error
from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.processes import Drawn
from harness.transfer.protocol import Buffer
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=3, suite="connector")

SIZES = (1, 1001, (1 << 20) + 1)
"""Bytes: the smallest payload, and two that are no multiple of anything a connector may pad to."""

MakePair = Callable[..., TwoProcesses]


def get_or_error(connector: Any, place: tuple[str, str, str], handle: Any) -> tuple[Buffer, int] | str | None:
    """What a get gives, or the text of its error."""
    __tracebackhide__ = True
    return answer_or_error(lambda: connector.get(*place, handle))


def check_nothing(judge: Judge, found: tuple[Buffer, int] | str | None, what: str) -> None:
    """A get gave None or an error that says something, and no bytes."""
    __tracebackhide__ = True
    got = "an error without a text" if isinstance(found, str) else "a payload"
    told = found is None or (isinstance(found, str) and bool(found))
    judge.demand(told, got=f"{what}: {got}", expected="none, or an error that says why")


@claim("connector.processes.bits", source="DESIGN: put gives (ok, size, handle), get gives (data, size) or None")
@requires(ConnectorCap.PROCESSES)
def test_bits(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """What was put in one process is got in another bit for bit, with its size."""
    pair = two_processes()
    for size in SIZES:
        drawn = Drawn(seed, size)
        ok, carried, handle = pair.sender.connector.put(*SLOT, drawn)
        judge.equal((ok, carried), (True, size), "what put says")

        check_payload(judge, pair.receiver.connector.get(*SLOT, handle), drawn.tensor(), f"payload of {size} bytes")
        pair.sender.connector.discard(*SLOT, handle)


@claim("connector.processes.many_keys", source="DESIGN: one key, one payload")
@requires(ConnectorCap.PROCESSES)
def test_many_keys(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """Payloads under many keys, put by both processes, each reach the other process under their own key."""
    pair = two_processes()
    sides = ((pair.sender.connector, pair.receiver.connector, ("0", "1")), (pair.receiver.connector, pair.sender.connector, ("1", "0")))
    put = []
    for number in range(16):
        for way, (mine, theirs, stages) in enumerate(sides):
            drawn, place = Drawn(seed + 2 * number + way, 100 + number), (*stages, f"key{number}-{way}")
            put.append((theirs, place, mine.put(*place, drawn)[2], drawn))

    for connector, place, handle, drawn in reversed(put):
        check_payload(judge, connector.get(*place, handle), drawn.tensor(), f"payload at {place}")
        connector.discard(*place, handle)


@claim("connector.processes.freed", source="vllm-omni#4414, #4349: segments that nobody frees")
@requires(ConnectorCap.PROCESSES)
def test_freed(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """A payload that the other process is done with, or discards, is held no longer where it was put."""
    pair = two_processes()
    sender, receiver = pair.sender.connector, pair.receiver.connector
    before = dict(sender.usage())
    for end in (receiver.done, receiver.discard):
        _, _, handle = sender.put(*SLOT, Drawn(seed, 1000))
        judge.demand(sender.usage()["bytes"] > before["bytes"], got="no bytes held", expected="bytes held after a put")
        check_payload(judge, receiver.get(*SLOT, handle), Drawn(seed, 1000).tensor(), "payload")

        end(*SLOT, handle)

        judge.equal(dict(sender.usage()), before, "what the sender's process holds after its peer let go")
        check_nothing(judge, get_or_error(receiver, SLOT, handle), "what get says after the end")


@claim("connector.processes.sender_killed_inside_put", source="LMCache#207: a payload is visible before its store completes")
@requires(ConnectorCap.PROCESSES)
def test_sender_killed_inside_put(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """A sender that is killed in the middle of a put delivers nothing, or all of it where it had come that far; never a part."""
    pair = two_processes()
    listened = pair.sender.endpoint
    drawn = pair.slow(seed)

    pair.kill_inside(pair.sender, "store", pair.sender.connector, "put", *SLOT, drawn)

    found = get_or_error(pair.receiver.connector, SLOT, listened)
    if pair.is_exact or not isinstance(found, tuple):
        check_nothing(judge, found, "what get says of a payload of which a half was put")
    else:
        check_payload(judge, found, drawn.tensor(), "payload of a sender that was killed")


@claim("connector.processes.sender_restarts", source="nixl#2051: what is remembered of a peer outlives it")
@requires(ConnectorCap.PROCESSES)
def test_sender_restarts(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """After a sender was killed in the middle of a put, the one that takes its place is heard, under the same key too."""
    pair = two_processes()
    pair.kill_inside(pair.sender, "store", pair.sender.connector, "put", *SLOT, pair.slow(seed))
    pair.restart_sender()

    for number, place in enumerate((SLOT, ("0", "1", "other")), start=1):
        _, _, handle = pair.sender.connector.put(*place, Drawn(seed + number, 1000))
        check_payload(
            judge, pair.receiver.connector.get(*place, handle), Drawn(seed + number, 1000).tensor(), f"the restarted sender's {place[2]}"
        )
        pair.receiver.connector.done(*place, handle)
    judge.equal(pair.sender.connector.usage()["segments"], 0, "payloads that the restarted sender holds in the end")


@claim(
    "connector.processes.sender_killed_after_put", source="Mooncake#850: the pages behind a descriptor are gone, and are read all the same"
)
@requires(ConnectorCap.PROCESSES)
def test_sender_killed_after_put(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """The payload of a sender that was killed after its put is got whole, or there is none."""
    pair = two_processes()
    drawn = Drawn(seed, 1000)
    _, _, handle = pair.sender.connector.put(*SLOT, drawn)
    pair.sender.child.kill()

    found = get_or_error(pair.receiver.connector, SLOT, handle)
    if isinstance(found, tuple):
        check_payload(judge, found, drawn.tensor(), "payload of a sender that was killed")
    else:
        check_nothing(judge, found, "what get says of a sender that was killed")


@claim("connector.processes.receiver_killed", source="vllm-omni#4414: payloads whose reader is gone")
@requires(ConnectorCap.PROCESSES)
def test_receiver_killed(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """A receiver that is killed while it holds a payload, or gets one, harms neither its sender nor the payload of the next receiver."""
    pair = two_processes()
    sender = pair.sender.connector
    _, _, handle = sender.put(*SLOT, Drawn(seed, 1000))
    pair.receiver.connector.unguarded.keep("get", *SLOT, handle)
    pair.restart_receiver()
    # A sender that stands still keeps whoever waits for it in the middle of its get.
    pair.sender.child.stop()
    pair.receiver.connector.unguarded.begin("get", *SLOT, handle)
    pair.receiver.child.kill()
    pair.sender.child.cont()
    pair.restart_receiver()

    found = pair.receiver.connector.get(*SLOT, handle)
    if found is not None:
        check_payload(judge, found, Drawn(seed, 1000).tensor(), "payload for the receiver that came back")
    sender.discard(*SLOT, handle)
    judge.equal(sender.usage()["segments"], 0, "payloads held after the discard")
    _, _, handle = sender.put(*SLOT, Drawn(seed + 1, 1000))
    check_payload(judge, pair.receiver.connector.get(*SLOT, handle), Drawn(seed + 1, 1000).tensor(), "the next payload")
    sender.discard(*SLOT, handle)


@claim("connector.processes.both_restarted", source="nixl#2051: descriptors of a restarted peer with the same name are reused")
@requires(ConnectorCap.PROCESSES)
def test_both_restarted(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """After both processes were killed and came back, no payload of their former lives is taken for one of the new."""
    pair = two_processes()
    _, _, old = pair.sender.connector.put(*SLOT, Drawn(seed, 1000))
    check_payload(judge, pair.receiver.connector.get(*SLOT, old), Drawn(seed, 1000).tensor(), "payload before the restart")
    pair.sender.connector.put(*SLOT, Drawn(seed, 1000))  # once more: a get may have taken the first away
    pair.restart_both()

    check_nothing(judge, get_or_error(pair.receiver.connector, SLOT, pair.sender.endpoint), "what get says before anything is put anew")
    _, _, new = pair.sender.connector.put(*SLOT, Drawn(seed + 1, 900))
    check_payload(judge, pair.receiver.connector.get(*SLOT, new), Drawn(seed + 1, 900).tensor(), "payload after the restart")
    pair.receiver.connector.done(*SLOT, new)


@claim("connector.processes.nothing_left", source="vllm-omni#4414, #4349: segments grow with every reader that is gone")
@requires(ConnectorCap.PROCESSES)
def test_nothing_left(two_processes: MakePair, judge: Judge, seed: int) -> None:
    """Whoever is killed, nothing stays in shared memory once another process has started in its place and all are closed."""
    pair = two_processes()
    pair.kill_inside(pair.sender, "store", pair.sender.connector, "put", *SLOT, pair.slow(seed))
    pair.restart_sender()
    _, _, handle = pair.sender.connector.put(*SLOT, Drawn(seed, 1000))
    pair.receiver.connector.unguarded.keep("get", *SLOT, handle)
    pair.restart_receiver()
    pair.sender.connector.put("0", "1", "unread", Drawn(seed, 1000))
    pair.restart_both()

    pair.close()

    judge.equal(pair.left_behind(), [], "what stands in /dev/shm and belongs to no process")
