"""What one slot hears, is and does moves no bit of another's output."""

import math
from dataclasses import replace

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.protocol import Phase, Session
from harness.duplex.script import Admit, Leave, Pause, Recycle, Script, Short
from harness.duplex.sounds import Noise, Silence, Sound, Spoiled
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=5, suite="duplex-cpu")
register_cuda_ci(est_time=40, suite="duplex-h100")


@claim("duplex.neighbours.audio", source="issue: no change of one slot's audio moves another's bits; vllm-omni#4415: every row hears row 0")
def test_audio(stage: Stage) -> None:
    """Whatever the neighbours hear, noise or nothing, a slot's output stays bit-identical, while theirs changes."""
    untouched = stage.script()
    halves = [list(stage.slots[parity::2]) for parity in (0, 1)]
    sounds: list[dict[int, Sound]] = [{slot: Noise(slot) if slot % 4 < 2 else Silence() for slot in half} for half in halves]
    before, runs = stage.controlled(untouched, *map(untouched.hearing, sounds))

    for half, after in zip(halves, runs, strict=True):
        stage.same(after, before, stage.others(*half))
        for slot in half:
            stage.differs(after, before, slot)


@claim("duplex.neighbours.persona", source="issue: no change of one slot's persona moves another's bits")
@requires(Duplex.PERSONA)
def test_persona(stage: Stage) -> None:
    """A neighbour's persona leaves a slot's output bit-identical."""
    check_session(stage, Session(persona=stage.engine.personas[1]))


@claim("duplex.neighbours.voice", source="issue: no change of one slot's voice moves another's bits")
@requires(Duplex.VOICE)
def test_voice(stage: Stage) -> None:
    """A neighbour's voice leaves a slot's output bit-identical."""
    check_session(stage, Session(voice=stage.engine.voices[1]))


@claim("duplex.neighbours.seed", source="FAULTS a-seed-needs-neighbour, seen from the greedy slot; vllm#51226")
@requires(Duplex.SEED)
def test_seed(stage: Stage, seed: int) -> None:
    """A neighbour that is sampled leaves a slot's output bit-identical."""
    check_session(stage, Session(seed=seed))


@claim("duplex.neighbours.draws", source="vllm#51226: draws by batch mates; tenstorrent/tt-metal#53802: seed salted by slot")
@requires(Duplex.SEED)
def test_draws(stage: Stage, workload: Workload, seed: int) -> None:
    """A seeded session draws from its own seed alone: not from its slot, and not from its neighbours' seeds, be they the same."""
    slot, other, at = workload.recycled, stage.slots[-1], workload.act_at
    tone = stage.tone(slot)
    sampled = stage.script().at(at, Recycle(slot, Session(seed=seed), tone))
    among = sampled.at(at, *(Recycle(n, Session(seed=seed + n + 1)) for n in stage.others(slot)))
    elsewhere = stage.script().at(at, Recycle(other, Session(seed=seed), tone))
    reseeded = stage.script().at(at, Recycle(slot, Session(seed=seed + 1), tone))
    twins = sampled.at(at + 1, Recycle(other, Session(seed=seed)))
    before, runs = stage.controlled(sampled, among, elsewhere, twins, reseeded)

    drawn = before.of(slot, epoch=1)
    for run, where in zip(runs, (slot, other, slot), strict=False):
        stage.same_session(run.of(where, epoch=1), drawn, f"the sampled session in slot {where}", source=f"its seed in slot {slot}, alone")
    stage.differs(runs[-1], before, slot)


@claim("duplex.neighbours.pause", source="issue: no pause of one slot moves another's bits")
@requires(Duplex.PAUSE)
def test_pause(stage: Stage, judge: Judge, workload: Workload) -> None:
    """A neighbour's pauses, also on the tick of a recycle, leave a slot's output bit-identical."""
    slot, last = workload.recycled, stage.slots[-1]
    untouched = stage.script()
    touched = untouched.at(2, Pause(slot, workload.pause_ticks)).at(workload.act_at, Recycle(last), Pause(last, 1), Pause(slot, 1))
    before, [after] = stage.controlled(untouched, touched)

    judge.taken(sum(frame.phase is Phase.PAUSED for frame in after.of(slot)), f"pauses of slot {slot}")
    stage.same(after, before, stage.others(slot, last))
    stage.differs(after, before, slot)


@claim("duplex.neighbours.not_finite", source="FAULTS a-nan-row-spreads: all rows NaN after one; local-inference-lab/vllm#621")
def test_not_finite(stage: Stage, workload: Workload) -> None:
    """A neighbour's NaN or infinite samples leave a slot's output bit-identical."""
    untouched = stage.script()
    slot, last = workload.recycled, stage.slots[-1]
    spoiled = [{slot: math.nan, last: math.inf}, {0: -math.inf}]
    runs = [untouched.hearing({s: Spoiled(stage.tone(s), workload.act_at, value) for s, value in bad.items()}) for bad in spoiled]
    before, after = stage.controlled(untouched, *runs)

    for bad, run in zip(spoiled, after, strict=True):
        stage.same(run, before, stage.others(*bad))
        for broken in bad:
            stage.shows(run, before, broken)


@claim("duplex.neighbours.short_frame", source="sglang-omni#319 (review): a tail whose size depends on a neighbour's length")
@requires(Duplex.VALID_SAMPLES)
def test_short_frame(stage: Stage, workload: Workload) -> None:
    """A neighbour's short frame, whichever slot it is in, leaves a slot's output bit-identical."""
    untouched, half = stage.script(), stage.engine.frame_size // 2
    before, runs = stage.controlled(untouched, *(untouched.at(workload.act_at, Short(slot, half)) for slot in stage.slots))

    for slot, after in zip(stage.slots, runs, strict=True):
        stage.same(after, before, stage.others(slot))
        stage.differs(after, before, slot)


@claim("duplex.neighbours.finish", source="issue: input that ends is drained; here, while others talk")
@requires(Duplex.FINISH)
def test_finish(stage: Stage) -> None:
    """A neighbour whose input has ended, and whose last frames are drained, leaves a slot's output bit-identical."""
    check_leaves(stage, "finish")


@claim("duplex.neighbours.cancel", source="issue: a cancelled occupant; here, what the others hear of it")
@requires(Duplex.CANCEL)
def test_cancel(stage: Stage) -> None:
    """A neighbour that is cancelled leaves a slot's output bit-identical."""
    check_leaves(stage, "cancel")


@claim("duplex.neighbours.admission", source="protocol: release and admit while the other slots are in conversation")
@requires(Duplex.ADMISSION)
def test_admission(stage: Stage, judge: Judge, workload: Workload) -> None:
    """A neighbour that leaves, the slot free behind it, and the next that is admitted leave a slot's output bit-identical."""
    after = check_leaves(stage, "release", Admit())
    judge.equal(after, [workload.recycled], "slots that the admitted session was given")


@claim("duplex.neighbours.permuted", source="issue: permuting slots permutes outputs")
def test_permuted(stage: Stage, workload: Workload) -> None:
    """Sessions that change places, with what they hear, take their output with them, bit for bit."""
    sessions = stage.sessions()
    longest = max(map(stage.engine.prefill_ticks, sessions))
    count = len(stage.slots)

    def seated(shift: int) -> Script:
        script = replace(stage.script(), ticks=1 + longest + workload.after_ticks)
        for slot in stage.slots:
            script = script.at(1, Recycle((slot + shift) % count, sessions[slot % len(sessions)], stage.tone(slot)))
        return script

    before, [after] = stage.controlled(seated(0), seated(1))
    for slot in stage.slots:
        moved = (slot + 1) % count
        who = f"the session of slot {slot}, moved to slot {moved}"
        stage.same_session(after.of(moved, epoch=1), before.of(slot, epoch=1), who, source=f"it in slot {slot}")
        stage.differs(after, before, slot)


def check_session(stage: Stage, session: Session) -> None:
    """A neighbour recycled for this session changes nobody else, against one recycled for the default."""
    slot, at = stage.workload.recycled, stage.workload.act_at
    script = stage.script(session=session)
    before, [after] = stage.controlled(script.at(at, Recycle(slot)), script.at(at, Recycle(slot, session)))

    stage.same(after, before, stage.others(slot))
    stage.differs(after, before, slot)


def check_leaves(stage: Stage, how: str, *then: Admit) -> list[int]:
    """A neighbour that goes so changes nobody else; `then` comes two ticks later. Returns the slots that were admitted to."""
    slot, at = stage.workload.recycled, stage.workload.act_at
    untouched = stage.script()
    before, [after] = stage.controlled(untouched, untouched.at(at // 2, Leave(slot, how)).at(at // 2 + 2, *then))

    stage.same(after, before, stage.others(slot))
    gone = sum(frame.phase in (Phase.FREE, Phase.DRAINED) for frame in after.of(slot))
    stage.judge.taken(gone, f"ticks on which slot {slot} was free")
    return after.admitted
