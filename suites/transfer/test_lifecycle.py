"""A request's transfer happens once, ends once, and leaves every other request alone."""

from typing import Any

from fixtures.transfer import Boundary, MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge, Trace
from harness.transfer.protocol import CompletionOutcome, Outcome
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.lifecycle.delivered_once", source="seed checks 2, round trip: consuming pops the future")
def test_delivered_once(boundary: MakeBoundary, judge: Judge) -> None:
    """A payload is delivered once: consuming the request again is a miss."""
    stage = boundary()
    stage.send("request")
    stage.start("request")

    stage.check(judge, stage.receiver.consume("request"), "request")
    judge.equal(stage.receiver.consume("request").outcome, Outcome.MISS, "outcome of consuming again")


@claim("transfer.lifecycle.reused_id", source="vllm-omni#4772 (review): a reused id is skipped as already enqueued")
def test_reused_id(boundary: MakeBoundary, judge: Judge) -> None:
    """A request id that comes again, after its first use ended, is fetched anew and given the new bits."""
    stage = boundary()
    for use in (1, 2, 3):
        stage.send("request")
        stage.start("request")
        judge.equal(stage.futures(), 1, f"prefetches tracked at use {use} of the id")
        stage.check(judge, stage.receiver.consume("request"), "request")


@claim("transfer.lifecycle.abort_not_fetched", source="vllm-omni#4772 (review: cancel() is never called), sglang#16369")
@requires(Transfer.ABORT)
@requires(Transfer.LAB)
def test_abort_not_fetched(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """A request that is aborted while its prefetch waits in the queue is never fetched."""
    for request, aborted in (("living", False), ("aborted", True)):
        stage = boundary()
        stage.send("before")
        stage.send(request)
        stage.witness.hold("get")
        stage.start("before")
        stage.witness.wait_held("get")
        stage.start(request)

        if aborted:
            stage.receiver.abort(request)
        stage.witness.release("get")
        engine.lab.advance(1)  # the worker does all that it has to do

        judge.equal(stage.fetched(request), 0 if aborted else 1, f"times that the {request} request was fetched")
        judge.equal(stage.receiver.consume(request).outcome, Outcome.MISS if aborted else Outcome.HIT, f"outcome of the {request} request")
        stage.settle()


@claim("transfer.lifecycle.abort_leaves_others", source="sglang#24527, sglang#24845: an abort reaches another request")
@requires(Transfer.ABORT)
def test_abort_leaves_others(boundary: MakeBoundary, judge: Judge) -> None:
    """Aborting a request, while its copy is under way and once more later, leaves the next request's payload bit-identical."""

    def run(abort: bool) -> Trace:
        stage = boundary()
        stage.generator.manual_seed(judge.seed)
        stage.send("r1")
        stage.send("r1_retry")
        if abort:
            stage.witness.hold("get")
            stage.start("r1")
            stage.witness.wait_held("get")
            stage.receiver.abort("r1")
            stage.witness.release("get")
        stage.start("r1_retry")
        if abort:
            stage.receiver.abort("r1")
        delivery = stage.receiver.consume("r1_retry")
        stage.check(judge, delivery, "r1_retry")
        gone = stage.receiver.consume("r1").outcome
        stage.settle()
        return {"outcome": gone, **{f"layer {i}": keys for i, keys in enumerate(delivery.payload.keys)}}

    judge.stimulus = "r1 aborted while its copy is under way, then r1_retry"
    untouched, touched = judge.controlled("abort_leaves_others", lambda: run(False), lambda: run(True))
    for label, expected in untouched.items():
        if label == "outcome":
            judge.equal(touched[label], expected, "outcome of r1")
        else:
            judge.same_bits(touched[label], expected, f"r1_retry: {label} keys", source="the run without an abort")


@claim("transfer.lifecycle.completes_once", source="vllm#53079 (review): exactly one completion a transfer, also after an abort")
@requires(Transfer.COMPLETIONS)
@requires(Transfer.ABORT)
@requires(Transfer.LAB)
def test_completes_once(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """Every started transfer completes exactly once, also one that is aborted while its copy is under way."""
    stage = boundary()
    for request in ("done", "aborted"):
        stage.send(request)

    stage.start("done")
    stage.receiver.consume("done")
    judge.equal(_ends(stage), [("done", 0, CompletionOutcome.DONE)], "completions of a delivered request")

    engine.lab.lag("copy", 3)
    try:
        stage.start("aborted")
        engine.lab.advance(1)
        judge.taken(stage.fetched("aborted"), "the copy was under way at the abort")
        stage.receiver.abort("aborted")
        stage.receiver.abort("aborted")
        engine.lab.advance(5)
    finally:
        engine.lab.lag("copy", 0)
    judge.equal(_ends(stage), [("aborted", 0, CompletionOutcome.ABORTED)], "completions of an aborted request")
    judge.equal(_ends(stage), [], "completions once all were told")
    stage.settle()


def _ends(stage: Boundary) -> list[tuple[str, int, CompletionOutcome]]:
    return [(c.request_id, c.generation, c.outcome) for c in stage.receiver.completions()]
