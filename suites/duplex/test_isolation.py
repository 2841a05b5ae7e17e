"""A slot is recycled while the others talk, and nobody else hears of it."""

from collections.abc import Callable

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.protocol import Phase, Session
from harness.duplex.script import Pause, Recycle
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=4, suite="duplex-cpu")
register_cuda_ci(est_time=40, suite="duplex-h100")


@claim("duplex.isolation.recycle", source="spec 1.1: slots 0, 2 and 3 while slot 1 is recycled, whole length, bit for bit")
def test_recycle(stage: Stage, judge: Judge, workload: Workload) -> None:
    """Recycling a slot leaves every other slot's output bit-identical."""
    slot, at = workload.recycled, workload.recycle_at
    untouched = stage.script(at=at, after=workload.live_ticks)
    before, [after] = stage.controlled(untouched, untouched.at(at, Recycle(slot)))

    for run in (before, after):
        judge.equal({len(run.of(other)) for other in stage.slots}, {untouched.ticks}, "records of a slot")
    stage.same(after, before, stage.others(slot))
    stage.differs(after, before, slot)


@claim("duplex.isolation.anywhere", source="vllm-omni runtime.py: a row's delay ring stands anywhere when it is recycled")
def test_anywhere(stage: Stage, workload: Workload) -> None:
    """Whichever slot is recycled, and at whichever phase of the delay ring, the others' output stays bit-identical."""
    untouched = stage.script(at=workload.act_at + workload.ring_phases)
    count = max(workload.ring_phases, len(stage.slots))
    plan = [(number % len(stage.slots), workload.act_at + number % workload.ring_phases) for number in range(count)]
    before, runs = stage.controlled(untouched, *(untouched.at(tick, Recycle(slot)) for slot, tick in plan))

    for (slot, _), after in zip(plan, runs, strict=True):
        stage.same(after, before, stage.others(slot))
        stage.differs(after, before, slot)


@claim("duplex.isolation.back_to_back", source="protocol: recycle, also of a slot in prefill")
def test_back_to_back(stage: Stage, judge: Judge, workload: Workload) -> None:
    """A slot that is recycled again and again, twice in one tick and in its prefill too, leaves the others' output bit-identical."""
    untouched = stage.script()
    slot, start = workload.recycled, workload.act_at - workload.ring_phases
    restless = untouched.at(start, Recycle(slot), Recycle(slot))
    for tick in range(start + 1, workload.act_at + 1):
        restless = restless.at(tick, Recycle(slot))
    before, [after] = stage.controlled(untouched, restless)

    stage.same(after, before, stage.others(slot))
    judge.equal(after.frames[-1][slot].epoch, 2 + workload.ring_phases, "epoch of the last occupant")
    stage.differs(after, before, slot)


@claim("duplex.isolation.two_at_once", source="two callers leave on one tick")
def test_two_at_once(stage: Stage, workload: Workload) -> None:
    """Two slots recycled on one tick leave the others' output bit-identical."""
    untouched = stage.script()
    first, second = workload.recycled, stage.slots[-1]
    touched = untouched.at(workload.act_at, Recycle(first), Recycle(second))
    before, [after] = stage.controlled(untouched, touched)

    stage.same(after, before, stage.others(first, second))
    for slot in (first, second):
        stage.differs(after, before, slot)


@claim("duplex.isolation.during_prefill", source="vllm-omni runtime.py: a prefill spans many ticks; others may be recycled inside it")
@requires(Duplex.PREFILL)
def test_during_prefill(stage: Stage, judge: Judge, workload: Workload) -> None:
    """Recycling a slot while another is in its prefill leaves that one's output, and every other's, bit-identical."""
    newcomer, slot = stage.slots[-1], workload.recycled
    middle = workload.act_at + stage.engine.prefill_ticks(Session()) // 2
    prefilling = stage.script(at=middle).at(workload.act_at, Recycle(newcomer))
    before, [after] = stage.controlled(prefilling, prefilling.at(middle, Recycle(slot)))

    judge.equal(before.frames[middle][newcomer].phase, Phase.PREFILL, f"phase of slot {newcomer} at tick {middle}")
    judge.taken(len(before.live(newcomer, epoch=1)), f"frames that slot {newcomer} gave after its prefill")
    stage.same(after, before, stage.others(slot))
    stage.differs(after, before, slot)


@claim("duplex.isolation.after_wrap", source="FAULTS a-ring-wrap-wrong, a-shared-ring-offset: what is right until the ring wraps")
def test_after_wrap(stage: Stage, workload: Workload, wrapped: int) -> None:
    """Recycling a slot after the rings have wrapped leaves every other slot's output bit-identical."""
    untouched = stage.script(at=wrapped)
    slot = workload.recycled
    before, [after] = stage.controlled(untouched, untouched.at(wrapped, Recycle(slot)))

    stage.same(after, before, stage.others(slot))
    stage.differs(after, before, slot)


@claim("duplex.isolation.while_paused", source="vllm-omni#7670 (active mask): a row that a tick leaves out")
@requires(Duplex.PAUSE)
def test_while_paused(stage: Stage, workload: Workload) -> None:
    """Recycling a slot while another is paused leaves that one's output, before and after its pause, and every other's, bit-identical."""
    slot, at = workload.recycled, workload.act_at
    paused = stage.script().at(at, Pause((slot + 1) % len(stage.slots), workload.pause_ticks))
    before, [after] = stage.controlled(paused, paused.at(at + 1, Recycle(slot)))

    stage.same(after, before, stage.others(slot))
    stage.differs(after, before, slot)


@claim("duplex.isolation.large_batch", source="FAULTS a-graph-pad-writes-slot, a-batch-size-numerics: right in a small batch")
@requires(Duplex.BATCH_PARITY)
def test_large_batch(build_stage: Callable[..., Stage], workload: Workload) -> None:
    """Recycling the last slot of nine leaves every other slot's output bit-identical."""
    stage = build_stage(batch="9")
    untouched, last = stage.script(), stage.slots[-1]
    before, [after] = stage.controlled(untouched, untouched.at(workload.act_at, Recycle(last)))

    stage.same(after, before, stage.others(last))
    stage.differs(after, before, last)
