"""A captured tick is the tick: on a card, where ticks are replayed from CUDA graphs."""

from collections.abc import Callable

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.script import Hear, Pause, Recycle
from harness.duplex.sounds import Noise
from harness.duplex.workload import Workload
from markers import hardware_marks, register_cuda_ci

pytestmark = hardware_marks(res={"cuda": "H100"}, num_cards=1)
register_cuda_ci(est_time=60, suite="duplex-h100")


@claim("duplex.graphs.eager", source="FAULTS a-graph-bakes-branch: vllm-omni#7416; a-graph-pad-writes-slot: vllm#43810")
@requires(Duplex.GRAPHS)
def test_eager(build_stage: Callable[..., Stage], judge: Judge, workload: Workload) -> None:
    """Ticks replayed from a captured graph give the bits of ticks run eagerly at the same padded size, through recycles and pauses too."""
    slot, at = workload.recycled, workload.recycle_at
    runs = []
    for graphs in ("off", "on"):
        # Three slots, so that a captured size has a padded row.
        stage = build_stage(graphs=graphs, batch="3")
        script = stage.script().at(at, Recycle(slot), Hear(0, Noise(0)))
        if stage.offers(Duplex.PAUSE):
            script = script.at(at // 2, Pause(stage.slots[-1], workload.pause_ticks))
        runs.append(stage.play(script))
        stage.engine.close()
    eager, replayed = runs

    stage.same(replayed, eager, stage.slots, source="the same ticks without graphs")
    judge.stimulus = "graphs=on against graphs=off, three slots"
