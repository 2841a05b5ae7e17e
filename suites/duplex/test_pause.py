"""A slot that is left out of some ticks goes on as if those ticks had not been."""

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.duplex.driver import Played
from harness.duplex.protocol import Frame, Phase, Session
from harness.duplex.script import DEFAULT, Leave, Pause, Recycle
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=3, suite="duplex-cpu")
register_cuda_ci(est_time=20, suite="duplex-h100")


@claim("duplex.pause.talking", source="FAULTS a-idle-row-advances; vllm-omni#7670: pause k ticks, then resume")
@requires(Duplex.PAUSE)
def test_talking(stage: Stage, workload: Workload) -> None:
    """A conversation that is paused for some ticks, once or again, or for long, goes on as if the pauses had never been."""
    untouched, long = stage.script(at=workload.act_at + 2 * workload.pause_ticks), workload.pause_ticks
    once, often, for_long = [(workload.act_at, long)], [(2, 1), (4, 1), (workload.act_at, long)], [(2, 3 * long)]
    ways, hosts = (once, often, for_long), stage.others(0)
    # In as few runs as go, one slot talking on in each.
    for first in range(0, len(ways), len(hosts)):
        here = dict(zip(hosts, ways[first:], strict=False))
        touched = untouched
        for slot, pauses in here.items():
            for tick, ticks in pauses:
                touched = touched.at(tick, Pause(slot, ticks))
        before, [after] = stage.controlled(untouched, touched)

        for slot, pauses in here.items():
            check_resumed(stage, after, before, slot, sum(ticks for _, ticks in pauses))


@claim("duplex.pause.sampled", source="a generator that is asked on a tick without its session; vllm#51226: draws that depend on others")
@requires(Duplex.PAUSE)
@requires(Duplex.SEED)
def test_sampled(stage: Stage, workload: Workload, seed: int) -> None:
    """A sampled session that is paused goes on with the draws that it would have had."""
    slot, at = workload.recycled, workload.act_at
    sampled = stage.script().at(0, Recycle(slot, Session(seed=seed), stage.tone(slot)))
    talks = stage.engine.prefill_ticks(Session(seed=seed))
    before, [after] = stage.controlled(sampled, sampled.at(talks + at // 2, Pause(slot, workload.pause_ticks)))

    check_resumed(stage, after, before, slot, workload.pause_ticks)


@claim("duplex.pause.before_first_word", source="issue: pause at each phase; the warm-up of the delay, and the very first tick")
@requires(Duplex.PAUSE)
def test_before_first_word(stage: Stage, workload: Workload) -> None:
    """A slot that is paused before its first tick, or before its first frame is out, goes on as if the pause had never been."""
    untouched, slot = stage.script(), workload.recycled
    starts = range(stage.engine.delay + 1)
    before, runs = stage.controlled(untouched, *(untouched.at(tick, Pause(slot, workload.pause_ticks)) for tick in starts))

    for after in runs:
        check_resumed(stage, after, before, slot, workload.pause_ticks)


@claim("duplex.pause.prefill", source="issue: pause at each phase; the prefill is a schedule of its own")
@requires(Duplex.PAUSE)
@requires(Duplex.PREFILL)
def test_prefill(stage: Stage, workload: Workload) -> None:
    """A slot that is paused on any tick of its prefill goes through the rest of it as if the pause had never been."""
    slot = workload.recycled
    session = Session(voice=stage.engine.voices[1]) if stage.offers(Duplex.VOICE) else DEFAULT
    pauses = stage.engine.prefill_ticks(session) + 1
    recycled = stage.script(at=1, after=workload.after_ticks + pauses, session=session).at(1, Recycle(slot, session))
    stuttering = recycled
    for number in range(pauses):
        # Every other tick is a pause: before each step of the prefill, and before the first tick of the conversation.
        stuttering = stuttering.at(1 + 2 * number, Pause(slot, 1))
    before, [after] = stage.controlled(recycled, stuttering)

    check_resumed(stage, after, before, slot, pauses)


@claim("duplex.pause.ending", source="protocol: live = False leaves a slot out of the tick, also one that is drained")
@requires(Duplex.PAUSE)
@requires(Duplex.FINISH)
def test_ending(stage: Stage, workload: Workload) -> None:
    """A slot that is paused while it is drained is given its last frames, and its last word, after the pause."""
    slot, at = workload.recycled, stage.engine.delay + 2
    untouched = stage.script(at=at, after=workload.pause_ticks + stage.engine.delay + 3).at(at, Leave(slot, "finish"))
    before, [after] = stage.controlled(untouched, untouched.at(at, Pause(slot, workload.pause_ticks)))

    stage.judge.equal([frame.phase for frame in after.of(slot)].count(Phase.DRAINED), 1, f"last words of slot {slot}")
    check_resumed(stage, after, before, slot, workload.pause_ticks)


@claim("duplex.pause.everyone", source="protocol: live = False leaves a slot out of the tick; all of them")
@requires(Duplex.PAUSE)
def test_everyone(stage: Stage, workload: Workload) -> None:
    """A tick that leaves every slot out is no tick for any of them."""
    untouched = stage.script()
    pauses = [Pause(slot, workload.pause_ticks) for slot in stage.slots]
    before, [after] = stage.controlled(untouched, untouched.at(workload.act_at, *pauses))

    for slot in stage.slots:
        check_resumed(stage, after, before, slot, workload.pause_ticks)


@claim("duplex.pause.after_wrap", source="FAULTS a-shared-ring-offset, a-idle-row-advances, where the ring has wrapped")
@requires(Duplex.PAUSE)
def test_after_wrap(stage: Stage, workload: Workload, wrapped: int) -> None:
    """A conversation that is paused after its window is full goes on as if the pause had never been, and so do its neighbours."""
    untouched, slot = stage.script(at=wrapped), workload.recycled
    before, [after] = stage.controlled(untouched, untouched.at(wrapped, Pause(slot, workload.pause_ticks)))

    check_resumed(stage, after, before, slot, workload.pause_ticks)
    stage.same(after, before, stage.others(slot))


def check_resumed(stage: Stage, after: Played, before: Played, slot: int, pauses: int) -> None:
    """Without the ticks it was left out of, as many as it was paused for, the slot gave what it gives uninterrupted."""
    __tracebackhide__ = True
    stage.judge.stimulus = after.script.against(before.script)
    went_on: list[Frame] = [frame for frame in after.of(slot) if frame.phase is not Phase.PAUSED]
    stage.judge.equal(len(after.of(slot)) - len(went_on), pauses, f"paused ticks of slot {slot}")
    stage.same_session(went_on, before.of(slot)[: len(went_on)], f"slot {slot}", source="the uninterrupted run")
