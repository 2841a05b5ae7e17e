"""A prefetch runs beside the compute of the request before it. On the virtual clock; `test_device.py` sees the same on a card."""

from typing import Any

from fixtures.transfer import MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.clock import TICK, Clock
from harness.core.judge import Judge
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")

COPY = 10
"""Ticks that a copy takes."""


@claim("transfer.overlap.hidden", source="DESIGN: a prefetch runs before its request does; spec: copies on a side stream")
@requires(Transfer.LAB)
def test_hidden(boundary: MakeBoundary, engine: Any, clock: Clock, judge: Judge) -> None:
    """A request waits for what its compute left of the copy and no longer: all of it, some, or none."""
    for compute in (0, 1, COPY - 1, COPY, 2 * COPY):
        stage = boundary()
        request = f"compute-{compute}"
        stage.send(request)
        engine.lab.lag("copy", COPY)
        stage.start(request)
        engine.lab.advance(compute)
        began = clock.now()
        stage.check(stage.receiver.consume(request), request)

        waited = round((clock.now() - began) / TICK)
        judge.equal(waited, max(0, COPY - compute), f"ticks that a request waited after {compute} ticks of compute")
        engine.lab.lag("copy", 0)


@claim("transfer.overlap.foreground", source="the twin of overlap.hidden: a receive in the foreground hides nothing")
@requires(Transfer.LAB)
def test_foreground(boundary: MakeBoundary, engine: Any, clock: Clock, judge: Judge) -> None:
    """A receive in the foreground takes as long as its copy, however long the request computed before."""
    stage = boundary()
    stage.send("request")
    engine.lab.lag("copy", COPY)
    engine.lab.advance(2 * COPY)
    began = clock.now()
    stage.check(stage.receive("request"), "request")

    judge.equal(round((clock.now() - began) / TICK), COPY, "ticks that a receive in the foreground took")
    engine.lab.lag("copy", 0)
