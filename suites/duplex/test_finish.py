"""The end of a caller's input: what is still to be said is given, whole and once."""

from dataclasses import replace

from fixtures.duplex import Stage
from fixtures.duplex_owed import check_phases
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.protocol import Phase
from harness.duplex.script import DEFAULT, Hear, Leave, Recycle, Script, Short
from harness.duplex.sounds import Noise, Silence, Sound, Spliced
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="duplex-cpu")
register_cuda_ci(est_time=10, suite="duplex-h100")

INPUTS = (0, 1, 2, 7)
"""Frames of input, before it ends."""
AFTERWARDS = 3
"""Ticks on which a drained slot has nothing more to give."""


@claim("duplex.finish.drained", source="sglang-omni#674 (review): short input gives no audio; vllm-omni#6406: the end is given again")
@requires(Duplex.FINISH)
def test_drained(stage: Stage) -> None:
    """Input that ends after any number of frames has brought as many, then DRAINED once, and then nothing more."""
    for script in _ending(stage):
        played = stage.play(script)
        check_phases(stage, played)
        for _, event in script.events:
            stage.judge.taken(sum(f.phase is Phase.DRAINED for f in played.of(event.slot)), f"the end of slot {event.slot}")


@claim("duplex.finish.as_silence", source="protocol: the next ticks hear silence until the last frame is given")
@requires(Duplex.FINISH)
def test_as_silence(stage: Stage) -> None:
    """The frames that are given after the end of the input are those that silence would have brought."""
    for script in _ending(stage):
        finished = stage.play(script)
        silent = stage.play(replace(script, events=tuple((tick, Hear(event.slot, Silence())) for tick, event in script.events)))
        for tick, event in script.events:
            given = finished.live(event.slot)
            stage.judge.equal(len(given), tick, f"frames of slot {event.slot}, whose input had {tick}")
            stage.same_session(
                given, silent.live(event.slot)[:tick], f"slot {event.slot}", source="a slot that hears silence from there on"
            )


@claim("duplex.finish.in_prefill", source="protocol: in prefill DRAINED on the next tick")
@requires(Duplex.FINISH)
@requires(Duplex.PREFILL)
def test_in_prefill(stage: Stage) -> None:
    """Input that ends in prefill, on any tick of it, is drained at once: nothing is given."""
    prefill, slots = stage.engine.prefill_ticks(DEFAULT), len(stage.slots)
    script, ended = Script(0, tuple(map(stage.tone, stage.slots))), 0
    for first in range(0, prefill, slots):
        # As many ticks of the prefill as there are slots, each in one of them; the next occupants come when all are through.
        begin, last = script.ticks, min(first + slots, prefill)
        for slot, tick in enumerate(range(first, last)):
            script = script.at(begin, Recycle(slot)).at(begin + tick, Leave(slot, "finish"))
            ended += 1
        script = replace(script, ticks=begin + last + 1)
    played = stage.play(script)

    check_phases(stage, played)
    drained = sum(frame.phase is Phase.DRAINED for slot in stage.slots for frame in played.of(slot))
    stage.judge.equal(drained, ended, "sessions that were drained")


@claim(
    "duplex.finish.next_whole", source="vllm-omni#6021: new data dropped as replayed; sglang-omni#674: state recreated by a late payload"
)
@requires(Duplex.FINISH)
def test_next_whole(stage: Stage) -> None:
    """The next occupant of a slot whose input had ended, drained or not, is given its whole session from frame 0 on."""
    at = stage.engine.delay + 4
    plain = stage.script(at=at, after=stage.engine.delay + 6).at(at, Recycle(0), Recycle(1))
    # Slot 0 is recycled before it is drained, slot 1 after.
    finished = replace(plain, events=((at, Leave(0, "finish")), (1, Leave(1, "finish")), *plain.events))
    before, [after] = stage.controlled(plain, finished)

    check_phases(stage, after)
    stage.same(after, before, (0, 1), since=at, source="the next occupant of a slot whose input had not ended")
    stage.judge.taken(len(after.live(0, epoch=1)), "frames of the next occupant")


@claim("duplex.finish.valid_samples", source="sglang-omni#319 (review), vllm-omni#4525 (#4466), transformers#43377: padding bleeds in")
@requires(Duplex.VALID_SAMPLES)
def test_valid_samples(stage: Stage, judge: Judge) -> None:
    """What lies behind each slot's own valid samples is not heard, and all before it is: it is as if silence lay there."""
    size, at = stage.engine.frame_size, 2
    ends = [(size * eighths) // 8 for eighths in (3, 8, 0, 7)]
    valid = {slot: ends[slot % len(ends)] for slot in stage.slots}

    def heard_before(behind: Sound) -> Script:
        return Script(at + stage.engine.delay + 6, tuple(Spliced(stage.tone(slot), at, end, behind) for slot, end in valid.items()))

    noisy = heard_before(Noise(judge.seed))
    cut = noisy.at(at, *(Short(slot, end) for slot, end in valid.items()))
    before, [after, whole] = stage.controlled(heard_before(Silence()), cut, noisy)

    stage.same(after, before, stage.slots, source="a run with silence behind the valid samples")
    for slot in (slot for slot, end in valid.items() if end < size):
        stage.differs(whole, before, slot)


@claim("duplex.finish.twice", source="a client that closes is often told to close again; sglang-omni#674 (review): state is made anew")
@requires(Duplex.FINISH)
def test_twice(stage: Stage, workload: Workload) -> None:
    """The end of an input that is told twice is drained like one that is told once."""
    slot, at = workload.recycled, stage.engine.delay + 2
    once = stage.script(at=at).at(at, Leave(slot, "finish"))
    before, [after] = stage.controlled(once, once.at(at, Leave(slot, "finish")))

    check_phases(stage, after)
    stage.same(after, before, stage.slots, source="the end told once")


@claim("duplex.finish.short_frame", source="vllm-omni#4525 (#4466): the shorter row; protocol: every frame of input has brought one")
@requires(Duplex.FINISH)
@requires(Duplex.VALID_SAMPLES)
def test_short_frame(stage: Stage, judge: Judge, workload: Workload) -> None:
    """Input whose last frame is short is drained whole, once: the short frame has brought one too."""
    slot, at = workload.recycled, stage.engine.delay + 2
    script = stage.script(at=at).at(at, Short(slot, stage.engine.frame_size // 2)).at(at + 1, Leave(slot, "finish"))
    played = stage.play(script)

    check_phases(stage, played)
    judge.equal(len(played.live(slot)), at + 1, f"frames of slot {slot}", source="its frames of input")


def _ending(stage: Stage) -> list[Script]:
    """Input of each length, one a slot, in as few runs as the slots allow."""
    ticks = max(INPUTS) + stage.engine.delay + 1 + AFTERWARDS
    scripts = []
    for first in range(0, len(INPUTS), len(stage.slots)):
        script = Script(ticks, tuple(map(stage.tone, stage.slots)))
        for slot, length in enumerate(INPUTS[first : first + len(stage.slots)]):
            script = script.at(length, Leave(slot, "finish"))
        scripts.append(script)
    return scripts
