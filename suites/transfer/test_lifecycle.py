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

    stage.check(stage.receiver.consume("request"), "request")
    judge.equal(stage.receiver.consume("request").outcome, Outcome.MISS, "outcome of consuming again")


@claim("transfer.lifecycle.reused_id", source="vllm-omni#4772 (review): a reused id is skipped as already enqueued")
def test_reused_id(boundary: MakeBoundary, judge: Judge) -> None:
    """A request id that comes again, after its first use ended, is fetched anew and given the new bits."""
    stage = boundary()
    for use in (1, 2, 3):
        stage.send("request", seq_len=max(1, stage.workload.seq_len - use))
        stage.start("request")
        judge.equal(stage.futures(), 1, f"prefetches tracked at use {use} of the id")
        stage.check(stage.receiver.consume("request"), "request")


@claim("transfer.lifecycle.abort_not_fetched", source="vllm-omni#4772 (review: cancel() is never called), sglang#16369")
@requires(Transfer.ABORT)
@requires(Transfer.PREFETCH_DEPTH, value=1)
def test_abort_not_fetched(boundary: MakeBoundary, judge: Judge) -> None:
    """A request that is aborted while its prefetch waits in the queue is never fetched."""
    for request, aborted in (("living", False), ("aborted", True)):
        stage = boundary()
        for sent in ("before", request, "after"):
            stage.send(sent)
        stage.witness.hold("get")
        stage.start("before")
        stage.witness.wait_held("get")
        stage.start(request)
        if aborted:
            stage.receiver.abort(request)
        stage.witness.release("get")

        if aborted:
            # A serial engine comes to what waited in its queue before it comes to the next request.
            stage.start("after")
            stage.check(stage.receiver.consume("after"), "after")
            stage.check_nothing(stage.receiver.consume(request), Outcome.MISS, request)
        else:
            stage.check(stage.receiver.consume(request), request)
        judge.equal(stage.fetched(request), 0 if aborted else 1, f"times that the {request} request was fetched")
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
        stage.check(delivery, "r1_retry")
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


@claim("transfer.lifecycle.abort_drops_result", source="sglang-omni#1773 (review), vllm#46283: what an aborted request held stays held")
@requires(Transfer.ABORT)
@requires(Transfer.LAB)
def test_abort_drops_result(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """A request that is aborted after its prefetch ended gets nothing, and nothing is held for it, here or at the connector."""
    stage = boundary()
    stage.send("request")
    stage.start("request")
    engine.lab.advance(1)
    judge.taken(stage.fetched("request"), "the prefetch ended before the abort")

    stage.receiver.abort("request")

    stage.check_nothing(stage.receiver.consume("request"), Outcome.MISS, "request")
    judge.equal(dict(stage.witness.usage()), {"segments": 0, "bytes": 0}, "what the connector holds")


@claim("transfer.lifecycle.abort_id_usable", source="vllm#10583: request ids come from clients, and come again")
@requires(Transfer.ABORT)
def test_abort_id_usable(boundary: MakeBoundary, judge: Judge) -> None:
    """The id of an aborted request can be sent and fetched anew, and is given the new bits."""
    stage = boundary()
    for _ in (1, 2):
        stage.send("request")
        stage.start("request")
        stage.receiver.abort("request")

    stage.send("request")
    stage.start("request")
    stage.check(stage.receiver.consume("request"), "request")


@claim(
    "transfer.lifecycle.ids_distinct",
    source="sglang#24845 (comment): ids matched by prefix; vllm#34415: request-id changes broke connectors",
)
def test_ids_distinct(boundary: MakeBoundary, judge: Judge) -> None:
    """Requests whose ids differ only in case, in a suffix, or behind a long common prefix are given their own payloads."""
    stage = boundary()
    ids = ["r1", "R1", "r1_retry0", "r1-0", "r1-1", "r1:0", "r1.0", "r10", "x" * 64 + "1", "x" * 64 + "2"]
    # As long as ids that carry a session, a user and a trace are.
    ids += ["y" * 200 + "1", "y" * 200 + "2"]
    for request in ids:
        stage.send(request)

    for request in reversed(ids):
        stage.start(request)
        stage.check(stage.receiver.consume(request), request)


@claim(
    "transfer.lifecycle.stages_apart", source="protocol: a connector carries from stage to stage; one request crosses several boundaries"
)
def test_stages_apart(boundary: MakeBoundary, judge: Judge) -> None:
    """One request id at several boundaries of one connector: each receiver is given what its own sender sent."""
    first = boundary(from_stage="0", to_stage="1")
    stages = [first, *(boundary(from_stage=a, to_stage=b, over=first) for a, b in (("0", "2"), ("3", "1"), ("2", "3")))]
    for stage in stages:
        stage.send("request")

    for stage in reversed(stages):
        stage.start("request")
        stage.check(stage.receiver.consume("request"), "request")


@claim("transfer.lifecycle.close", source="protocol: close ends all background work, and may be called twice")
def test_close(boundary: MakeBoundary, judge: Judge) -> None:
    """Closing a manager ends its worker and drops its prefetches, also when it is closed twice."""
    stage = boundary()
    stage.send("request")
    stage.start("request")
    judge.equal(stage.receiver.usage()["workers"], 1, "workers before the close")

    for _ in (1, 2):
        stage.receiver.close()
        usage = stage.receiver.usage()
        judge.equal((usage["futures"], usage["workers"]), (0, 0), "prefetches and workers after the close")
    stage.witness.drain()


@claim("transfer.lifecycle.completes_once", source="vllm#53079 (review): exactly one completion a transfer, also after an abort")
@requires(Transfer.COMPLETIONS)
@requires(Transfer.ABORT)
@requires(Transfer.LAB)
def test_completes_once(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """Every started transfer completes exactly once, as what it came to, also one aborted in the queue or under way."""
    stage = boundary()

    def run(request: str, *, sent: bool = True, fails: bool = False, aborted: bool = False) -> None:
        if sent:
            stage.send(request)
        if fails:
            stage.witness.fail("get")
        if aborted:
            engine.lab.lag("copy", 3)
        stage.start(request)
        if aborted:
            engine.lab.advance(1)
            judge.taken(stage.fetched(request), "the copy was under way at the abort")
            stage.receiver.abort(request)
            stage.receiver.abort(request)
            engine.lab.advance(5)
            engine.lab.lag("copy", 0)
        stage.receiver.consume(request)
        stage.witness.mend()

    run("done")
    judge.equal(_ends(stage), [("done", CompletionOutcome.DONE)], "completions of a delivered request")
    run("missed", sent=False)
    judge.equal(_ends(stage), [("missed", CompletionOutcome.MISSED)], "completions of a request that nothing came for")
    run("failed", fails=True)
    judge.equal(_ends(stage), [("failed", CompletionOutcome.FAILED)], "completions of a failed request")
    run("aborted", aborted=True)
    judge.equal(_ends(stage), [("aborted", CompletionOutcome.ABORTED)], "completions of a request aborted under way")

    stage.send("received")
    stage.receive("received")
    stage.receive("not sent")
    expected = [("received", CompletionOutcome.DONE), ("not sent", CompletionOutcome.MISSED)]
    judge.equal(_ends(stage), expected, "completions of two receives in the foreground")

    stage.witness.hold("get")
    stage.send("before")
    stage.start("before")
    stage.witness.wait_held("get")
    stage.send("queued")
    stage.start("queued")
    stage.receiver.abort("queued")
    stage.witness.release("get")
    engine.lab.advance(1)
    expected = [("before", CompletionOutcome.ABORTED), ("queued", CompletionOutcome.ABORTED)]
    judge.equal(sorted(_ends(stage)), expected, "completions of a dropped request and one aborted in the queue")
    judge.equal(_ends(stage), [], "completions once all were told")
    stage.settle()


@claim("transfer.lifecycle.generations", source="vllm-omni#3745 (RFC: epoch fence): a late end must not be taken for the next use's")
@requires(Transfer.COMPLETIONS)
def test_generations(boundary: MakeBoundary, judge: Judge) -> None:
    """The uses of one request id complete under generations 0, 1, 2, told apart even when they are asked for together."""
    stage = boundary()
    for use in range(3):
        stage.send("request")
        stage.start("request")
        stage.check(stage.receiver.consume("request"), "request")
        for other in range(40):
            # Other requests between two uses of an id, as any server has them.
            stage.check_no_hit(stage.receive(f"other-{use}-{other}", timeout=0), "other")

    told = [(c.request_id, c.generation, c.outcome) for c in stage.receiver.completions() if c.request_id == "request"]
    judge.equal(told, [("request", use, CompletionOutcome.DONE) for use in range(3)], "completions of three uses")


def _ends(stage: Boundary) -> list[tuple[str, CompletionOutcome]]:
    return [(c.request_id, c.outcome) for c in stage.receiver.completions()]
