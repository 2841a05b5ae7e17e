"""A stage boundary between two processes: caches cross whole, and a side that is killed is told of, and heard again when it is back."""

from collections.abc import Callable

from fixtures.processes import Apart, answer_or_error
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Delivery, Outcome
from markers import register_ci, register_cuda_ci

register_ci(est_time=3, suite="transfer")
register_cuda_ci(est_time=8, suite="transfer-h100")

MakeApart = Callable[..., Apart]

PATHS = ("prefetched", "received")
"""The two paths to a cache: see `Boundary.fetch`."""

BRIEF = 0.1
"""Seconds to wait for a sender that is known to be gone."""


def fetched_or_error(boundary: Apart, request_id: str) -> Delivery | str:
    """What a short receive gives, or the text of its error."""
    __tracebackhide__ = True
    return answer_or_error(lambda: boundary.receive(request_id, timeout=BRIEF))


def check_whole_or_told(boundary: Apart, judge: Judge, got: Delivery | str, request_id: str) -> None:
    """A HIT holds every bit; anything else carries nothing."""
    __tracebackhide__ = True
    if isinstance(got, Delivery) and got.outcome is Outcome.HIT:
        boundary.check(got, request_id)
    else:
        check_told(judge, got, request_id)


def check_told(judge: Judge, got: Delivery | str, request_id: str) -> None:
    """No cache: an error, a miss, or a failure."""
    __tracebackhide__ = True
    if isinstance(got, Delivery):
        judge.demand(got.outcome is not Outcome.HIT, got=f"{request_id}: a hit", expected="a miss, a failure or an error")
        judge.equal((got.payload, got.size, got.valid_tokens), (None, 0, 0), f"{request_id}: payload, size, rows that hold KV")
    else:
        judge.demand(bool(got), got=f"{request_id}: an error without a text", expected="one that says what happened")


@claim("transfer.processes.bits", source="DESIGN: one side of a stage boundary a manager; sides live in processes of their own")
@requires(Transfer.PROCESSES)
def test_bits(apart: MakeApart) -> None:
    """A cache that one process sent is delivered in another, on both paths to it, with every bit, its length and its metadata."""
    boundary = apart()
    for how in PATHS:
        for request_id in ("r1", "r2"):
            boundary.send(request_id)
            boundary.check(boundary.fetch(how, request_id), request_id)


@claim("transfer.processes.freed", source="vllm-omni#4414, #4349: segments that nobody frees")
@requires(Transfer.PROCESSES)
def test_freed(apart: MakeApart, judge: Judge) -> None:
    """Once a cache is delivered in the other process, the sender's process holds nothing for it any more."""
    boundary = apart()
    before = boundary.held()
    for how in PATHS:
        boundary.send("r1")
        judge.demand(boundary.held()["bytes"] > before["bytes"], got="no bytes held", expected="bytes held after a send")

        boundary.check(boundary.fetch(how, "r1"), "r1")

        judge.equal(boundary.held(), before, f"what the sender's process holds once the cache is {how}")


@claim("transfer.processes.sender_killed_inside_send", source="LMCache#207: a payload is visible before its store completes")
@requires(Transfer.PROCESSES)
def test_sender_killed_inside_send(apart: MakeApart, judge: Judge) -> None:
    """The cache of a sender that was killed in the middle of its send is not delivered, unless it had left whole; never a part of it."""
    boundary = apart()

    boundary.kill_sender_inside_send("r1")

    got = fetched_or_error(boundary, "r1")
    if boundary.processes.is_exact:
        check_told(judge, got, "r1")
    else:
        check_whole_or_told(boundary, judge, got, "r1")


@claim(
    "transfer.processes.sender_killed_between",
    source="vllm#50754, TensorRT-LLM#12542: a sender that fails is waited for, and its blocks held",
)
@requires(Transfer.PROCESSES)
def test_sender_killed_between(apart: MakeApart, judge: Judge) -> None:
    """When a sender dies between two of several requests, what left before is whole or told lost, and what never left is told too."""
    boundary = apart(receive_timeout=BRIEF)
    boundary.send("r1")
    boundary.send("r2")
    boundary.check(boundary.fetch("prefetched", "r1"), "r1")
    boundary.processes.sender.child.kill()

    for request_id in ("r2", "r3"):
        boundary.start(request_id)
        got = boundary.receiver.consume(request_id)
        if request_id == "r2":
            check_whole_or_told(boundary, judge, got, request_id)
        else:
            check_told(judge, got, request_id)


@claim("transfer.processes.sender_restarts", source="nixl#2051: descriptors of a restarted peer with the same name are reused")
@requires(Transfer.PROCESSES)
def test_sender_restarts(apart: MakeApart) -> None:
    """A sender that takes the place of a killed one is heard, for an id that the old one was killed in the middle of, and for new ones."""
    boundary = apart()
    for how in PATHS:
        boundary.kill_sender_inside_send("r1")
        boundary.restart_sender()

        for request_id in ("r1", "r2"):
            boundary.send(request_id)
            boundary.check(boundary.fetch(how, request_id), request_id)


@claim("transfer.processes.receiver_killed", source="vllm-omni#4414: payloads whose reader is gone")
@requires(Transfer.PROCESSES)
def test_receiver_killed(apart: MakeApart, judge: Judge) -> None:
    """A receiver that is killed in the middle of a receive harms no sender: the cache reaches the next receiver or is told lost."""
    boundary = apart()
    boundary.send("r1")
    pair = boundary.processes
    pair.kill_inside(pair.receiver, "copy", pair.receiver.manager, "receive", "r1", boundary.endpoint, boundary.workload.receive_timeout)
    boundary.restart_receiver()

    check_whole_or_told(boundary, judge, fetched_or_error(boundary, "r1"), "r1")
    boundary.send("r2")
    boundary.check(boundary.receive("r2"), "r2")


@claim("transfer.processes.both_restarted", source="nixl#2051; vllm#10583: state that outlives the request it belongs to")
@requires(Transfer.PROCESSES)
def test_both_restarted(apart: MakeApart, judge: Judge) -> None:
    """After both sides were killed and came back, a request is given what was sent since, never what its id meant before."""
    boundary = apart()
    boundary.send("r1")
    boundary.check(boundary.receive("r1"), "r1")
    boundary.send("r1")
    boundary.restart_both()

    check_told(judge, fetched_or_error(boundary, "r1"), "r1")
    boundary.send("r1")
    boundary.check(boundary.receive("r1"), "r1")


@claim("transfer.processes.nothing_left", source="vllm-omni#4414, #4349: segments grow with every reader that is gone")
@requires(Transfer.PROCESSES)
def test_nothing_left(apart: MakeApart, judge: Judge) -> None:
    """Whichever side is killed, nothing stays in shared memory once another process has started in its place and all are closed."""
    boundary = apart()
    boundary.send("r1")
    boundary.kill_sender_inside_send("r2")
    boundary.restart_sender()
    boundary.send("r3")
    boundary.restart_receiver()
    boundary.check(boundary.receive("r3"), "r3")

    boundary.processes.close()

    judge.equal(boundary.processes.left_behind(), [], "what stands in /dev/shm and belongs to no process")
