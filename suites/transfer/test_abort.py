"""An abort ends one request's transfer, whatever state it is in, and costs nobody else anything."""

from typing import Any

from fixtures.transfer import Boundary, MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.abort.late_end", source="vllm#53079, #50565, #25067; sglang-omni#1773: the end of an aborted request's transfer raises")
@requires(Transfer.ABORT)
@requires(Transfer.LAB)
def test_late_end(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """A copy that ends, well or badly, after its request was aborted harms nothing: the next requests are fetched in the background."""
    stage = boundary()
    for fails in (False, True):
        abort_under_way(stage, engine, f"gone-{fails}", fails)
        for request in (f"next-{fails}", f"after-{fails}"):
            stage.send(request)
            stage.start(request)
            stage.check(stage.receiver.consume(request), request)


@claim("transfer.abort.landing", source="sglang#24527: pages freed at the abort while the writer is active; a later request is overwritten")
@requires(Transfer.ABORT)
@requires(Transfer.LAB)
def test_landing(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """A copy that goes on after its request was aborted does not write over a payload delivered meanwhile."""
    stage = boundary()
    stage.send("gone")
    stage.send("request")
    engine.lab.lag("copy", 5)
    stage.start("gone")
    engine.lab.advance(1)
    judge.taken(stage.fetched("gone"), "the copy was under way at the abort")
    stage.receiver.abort("gone")
    engine.lab.lag("copy", 0)

    delivery = stage.receive("request")
    stage.check(delivery, "request")
    engine.lab.advance(10)
    judge.equal(stage.receiver.usage().get("copies", 0), 0, "copies under way at the end")
    stage.check(delivery, "request")


@claim("transfer.abort.frees", source="vllm#46283, #46289: blocks of a request aborted while it waits are held for ever")
@requires(Transfer.ABORT)
@requires(Transfer.LAB)
def test_frees(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """What the receiver holds for a request is free again once its abort has taken effect: waiting, under way, or fetched."""
    stage = boundary()
    stage.start("warm-up")
    stage.receiver.consume("warm-up")
    before = dict(stage.receiver.usage())
    for round_ in range(3):
        stage.start(f"waiting-{round_}")
        engine.lab.advance(1)
        stage.receiver.abort(f"waiting-{round_}")
        engine.lab.advance(1)
        judge.equal(dict(stage.receiver.usage()), before, "what the receiver holds after an abort while it waits for the sender")

        abort_under_way(stage, engine, f"under way-{round_}", fails=False)
        judge.equal(dict(stage.receiver.usage()), before, "what the receiver holds after an abort under way")

        stage.send(f"fetched-{round_}")
        stage.start(f"fetched-{round_}")
        engine.lab.advance(1)
        stage.receiver.abort(f"fetched-{round_}")
        judge.equal(dict(stage.receiver.usage()), before, "what the receiver holds after an abort of a fetched payload")


@claim("transfer.abort.unknown_ids", source="sglang#39428: unknown transfer ids create state that is never removed")
@requires(Transfer.ABORT)
def test_unknown_ids(boundary: MakeBoundary, judge: Judge) -> None:
    """Ids that nothing was started or sent for leave nothing behind, aborted or consumed, however many come."""
    stage = boundary()
    before = dict(stage.receiver.usage())
    for number in range(200):
        stage.receiver.abort(f"stranger-{number}")
        stage.check_no_hit(stage.receiver.consume(f"stranger-{number}"), "a stranger")
    judge.equal(dict(stage.receiver.usage()), before, "what the receiver holds after 200 unknown ids")
    judge.equal(stage.witness.usage()["segments"], 0, "what the connector holds after 200 unknown ids")

    stage.send("request")
    stage.start("request")
    stage.check(stage.receiver.consume("request"), "request")


def abort_under_way(stage: Boundary, engine: Any, request: str, fails: bool) -> None:
    """Abort the request while its copy is under way, and let the copy end."""
    stage.send(request)
    engine.lab.lag("copy", 3)
    if fails:
        engine.lab.fail_next("copy")
    stage.start(request)
    engine.lab.advance(1)
    stage.judge.taken(stage.fetched(request), "the copy was under way at the abort")
    stage.receiver.abort(request)
    engine.lab.advance(5)
    engine.lab.lag("copy", 0)
