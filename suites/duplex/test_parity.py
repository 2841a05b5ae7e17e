"""How far the batch size is heard."""

from collections.abc import Callable

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.driver import Played
from harness.duplex.protocol import Parity
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="duplex-cpu")
register_cuda_ci(est_time=60, suite="duplex-h100")

BATCHES = (1, 2, 4, 9)
"""Alone, in the seeds' sizes, and past eight, where kernels and tiles change."""


@claim("duplex.parity.batch", source="FAULTS a-batch-size-numerics: sglang-omni#749, 41 of 300 codes; batch_invariant_ops#6")
@requires(Duplex.BATCH_PARITY)
def test_batch(build_stage: Callable[..., Stage], parity_of: Callable[[Stage], Parity], judge: Judge, workload: Workload) -> None:
    """A session gives the same at every batch size: the same bits, or the text of float32, as the engine states."""
    first = build_stage(batch=str(BATCHES[0]))
    parity = parity_of(first)
    script = first.script(after=workload.live_ticks)
    expected, source = first.play(script), f"batch {BATCHES[0]}"
    first.engine.close()
    if parity is Parity.TEXT:
        whole = build_stage(batch=str(BATCHES[0]), dtype="float32")
        judge.equal(expected.text(0), whole.play(script).text(0), "text at batch 1", source="the same weights in float32")
        whole.engine.close()
    for batch in BATCHES[1:]:
        stage = build_stage(batch=str(batch))
        run = stage.play(stage.script(after=workload.live_ticks))
        check(stage, run, expected, parity, f"slot 0 at batch {batch}", source)
        stage.engine.close()


def check(stage: Stage, run: Played, expected: Played, parity: Parity, who: str, source: str) -> None:
    """Slot 0 of both runs, as closely as the engine states."""
    if parity is Parity.BITS:
        stage.same_session(run.of(0), expected.of(0), who, source=source)
    else:
        stage.judge.equal(run.text(0), expected.text(0), f"text of {who}", source=source)
