"""Rows of the batch are the engine's own affair: what lies in them unused, and where a session lies, is heard by nobody."""

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.script import Admit, LabCall, Leave, Pause, Recycle, Script
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="duplex-cpu")
register_cuda_ci(est_time=10, suite="duplex-h100")


@claim("duplex.rows.poisoned", source="FAULTS a-nan-row-spreads, a-graph-pad-writes-slot; nod-ai/amd-shark-ai#665: a mask is added to NaN")
@requires(Duplex.LAB)
@requires(Duplex.ADMISSION)
def test_poisoned(stage: Stage, workload: Workload) -> None:
    """NaN in free and padded rows, and behind every mask, changes no bit of any session, nor of the next one in a poisoned row."""
    lived = leaves_and_comes(stage)
    poisoned = lived
    for tick in (1, workload.recycle_at // 2, workload.recycle_at, workload.recycle_at + 1):
        poisoned = Script(poisoned.ticks, poisoned.hears, ((tick, LabCall("poison_free")), *poisoned.events))
    before, [after] = stage.controlled(lived, poisoned)

    stage.same(after, before, stage.slots, source="the run without poison")


@claim("duplex.rows.moved", source="FAULTS a-swap-aliases-state: a row is moved and leaves its state in two places; vllm#51890")
@requires(Duplex.LAB)
@requires(Duplex.ADMISSION)
def test_moved(stage: Stage, judge: Judge, workload: Workload) -> None:
    """Sessions that are moved to other rows, in prefill, paused or talking, go on as if they had stayed, and answer to their slots."""
    lived = leaves_and_comes(stage)
    moved = lived.at(workload.recycle_at // 2, LabCall("compact")).at(workload.recycle_at + 2, LabCall("compact"))
    before, [after] = stage.controlled(lived, moved)

    judge.equal(after.admitted, before.admitted, "slots that were admitted to", source="the run without a move")
    stage.same(after, before, stage.slots, source="the run without a move")


def leaves_and_comes(stage: Stage) -> Script:
    """Slot 0 is left free for a while, and another is paused and recycled meanwhile, so that rows lie free before rows in use."""
    at, slot = stage.workload.recycle_at, stage.workload.recycled
    script = stage.script().at(2, Leave(0)).at(at - 2, Recycle(slot)).at(at, Admit(sound=stage.tone(0)))
    return script.at(at // 2 - 1, Pause(stage.slots[-1], 2)) if stage.offers(Duplex.PAUSE) else script
