"""Slots come back however a session ends, and one session's failure is its own."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from fixtures.duplex import Stage
from fixtures.duplex_owed import check_phases
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.core.memory import live_tensors
from harness.duplex.protocol import Frame, Phase
from harness.duplex.script import DEFAULT, Event, Hear, LabCall, Leave, Pause, Recycle, Script
from harness.duplex.sounds import Flat, Spoiled
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=4, suite="duplex-cpu")
register_cuda_ci(est_time=30, suite="duplex-h100")

QUICK = ("release", "cancel", "finish", "recycle")
"""Ways to end before the caller was heard."""
SLOW = ("fail", "finish", "cancel", "release")
"""Ways to end once it was."""
SLOW_WAVE = 10
"""One wave of sessions in so many is heard before it ends."""


@claim("duplex.slots.recycled_often", source="vllm-omni#5235 (review), #4929: what a session held is not given back")
def test_recycled_often(stage: Stage, judge: Judge, workload: Workload) -> None:
    """After 200 sessions an engine holds what it held after the first ones, and still converses."""
    engine = stage.engine
    engine.open()
    held: dict[str, int] = {}
    for number in range(workload.sessions):
        engine.recycle(number % engine.slots, DEFAULT)
        if number % engine.slots == engine.slots - 1:
            _tick(stage)
            held = held or dict(engine.usage())
    judge.equal(dict(engine.usage()), held, f"what the engine holds after {workload.sessions} sessions", source=f"{engine.slots} sessions")
    _check_converses(stage)


@claim("duplex.slots.memory", source="issue: memory comes back after 200 sessions; vllm-omni#5235 (review)")
def test_memory(stage: Stage, judge: Judge, workload: Workload) -> None:
    """After 200 sessions no more tensors are alive than after the first ones, in number and in bytes, whatever the engine itself counts."""
    engine = stage.engine
    engine.open()
    waves, held = -(-workload.sessions // engine.slots), {}
    for wave in range(waves):
        for slot in stage.slots:
            if slot % 2 and stage.offers(Duplex.CANCEL):
                engine.cancel(slot)
            engine.recycle(slot, DEFAULT)
        _tick(stage)
        if wave == 1:
            # The second wave is the first that finds what a wave leaves behind.
            held = live_tensors()
    judge.taken(waves - 2, "waves of sessions after the second")
    judge.equal(live_tensors(), held, f"tensors after {waves * engine.slots} sessions", source=f"{2 * engine.slots} sessions")


@claim("duplex.slots.come_back", source="vllm-omni#5235 (review), #4929; delayed-streams-modeling#159: no free channels")
@requires(Duplex.ADMISSION)
@requires(Duplex.FINISH)
@requires(Duplex.CANCEL)
@requires(Duplex.SLOT_ERRORS)
def test_come_back(stage: Stage, judge: Judge, workload: Workload) -> None:
    """Slots and memory come back after 200 sessions, however each ends: released, cancelled, finished, recycled or failed."""
    engine, prefill = stage.engine, stage.engine.prefill_ticks(DEFAULT)
    engine.open()
    for slot in stage.slots:
        engine.release(slot)
    empty = dict(engine.usage())
    judge.equal(empty["slots"], 0, "occupied slots of an empty engine")
    for wave in range(-(-workload.sessions // engine.slots)):
        slots = [engine.admit(DEFAULT) for _ in stage.slots]
        judge.equal(sorted(slots), list(stage.slots), f"slots of wave {wave}")
        judge.equal(engine.usage()["slots"], engine.slots, "occupied slots of a full engine")
        slow = wave % SLOW_WAVE == 0
        _tick(stage, times=prefill + 1 if slow else 1)
        _end(stage, {slot: (SLOW if slow else QUICK)[(slot + wave) % len(SLOW)] for slot in slots})
        judge.equal(dict(engine.usage()), empty, f"what the engine holds after wave {wave}", source="the empty engine")
    for _ in stage.slots:
        engine.admit(DEFAULT)
    _check_converses(stage)


@claim("duplex.slots.failure", source="vllm-omni#7277, #6170, vllm#44933: an error of one session ends the engine")
@requires(Duplex.SLOT_ERRORS)
def test_failure(stage: Stage, judge: Judge) -> None:
    """A sample that is not finite, in warm-up or later, ends its slot's session alone: FAILED once, with the reason, then free."""
    script = Script(stage.engine.delay + 6, tuple(map(stage.tone, stage.slots)))
    spoilt = {
        # The first in warm-up, the next two on one later tick.
        slot: Spoiled(stage.tone(slot), (number + 1) // 2 * (stage.engine.delay + 1), value)
        for number, (slot, value) in enumerate(zip(stage.others(0), (math.nan, math.inf, -math.inf), strict=False))
    }
    before, [after] = stage.controlled(script, script.hearing(spoilt))

    check_phases(stage, after)
    for slot in spoilt:
        failed = [frame for frame in after.of(slot) if frame.phase is Phase.FAILED]
        judge.demand(bool(failed[0].error), got=f"slot {slot}: error {failed[0].error!r}", expected="a text that says why it failed")
    stage.same(after, before, stage.others(*spoilt))


@claim("duplex.slots.unheard", source="protocol: a slot in prefill, or free, ignores its row; one that is paused is left out")
@requires(Duplex.SLOT_ERRORS)
@requires(Duplex.ADMISSION)
@requires(Duplex.PAUSE)
@requires(Duplex.FINISH)
@requires(Duplex.PREFILL)
def test_unheard(stage: Stage, judge: Judge) -> None:
    """NaN in the row of a slot that is paused, in prefill, free, or whose input has ended is not looked at: nothing changes."""
    at = stage.engine.delay + 2
    unheard: dict[str, Callable[[int], Event]] = {
        "paused": lambda slot: Pause(slot, 2),
        "in prefill": Recycle,
        "ending": lambda slot: Leave(slot, "finish"),
        "free": Leave,
    }
    situations, hosts = list(unheard), stage.others(0)
    # In as few runs as go, one slot talking in each.
    for first in range(0, len(situations), len(hosts)):
        here = dict(zip(hosts, situations[first:], strict=False))
        clean = stage.script(at=at).at(at, *(unheard[situation](slot) for slot, situation in here.items()))
        dirty = clean.at(at, *(Hear(slot, Flat(math.nan)) for slot in here))
        # Two ticks long nobody hears the row; then its own sound is back, at the conversation's own time.
        back = {slot: at + (stage.engine.prefill_ticks(DEFAULT) if situation == "in prefill" else 2) for slot, situation in here.items()}
        for slot, tick in back.items():
            dirty = dirty.at(tick, Hear(slot, stage.tone(slot)))
        before, [after] = stage.controlled(clean, dirty)

        for slot, situation in here.items():
            away = sum(frame.phase is not Phase.LIVE for frame in after.of(slot)[at : back[slot]])
            judge.taken(away, f"ticks on which slot {slot} is {situation}")
        where = ", ".join(f"slot {slot} is {situation}" for slot, situation in here.items())
        stage.same(after, before, stage.slots, source=f"clean rows while {where}")


@claim("duplex.slots.failure_inside", source="vllm-omni#7277: one session's error in the engine; sglang-omni#1773 (review)")
@requires(Duplex.SLOT_ERRORS)
@requires(Duplex.LAB)
def test_failure_inside(stage: Stage, judge: Judge) -> None:
    """An error in the engine at one slot's frame ends that slot's session alone, and the next occupant begins anew."""
    at, slot = stage.engine.delay + 2, 1
    plain = stage.script(at=at + 2, after=stage.engine.delay + 4).at(at + 2, Recycle(slot))
    broken = replace(plain, events=((at, LabCall("fail_next", (f"frame:{slot}",))), *plain.events))
    before, [after] = stage.controlled(plain, broken)

    phases = [frame.phase for frame in after.of(slot)[at : at + 2]]
    judge.equal(phases, [Phase.FAILED, Phase.FREE], f"phases of slot {slot} from tick {at} on")
    judge.demand(bool(after.frames[at][slot].error), got="no error", expected="a text that says why it failed")
    stage.same(after, before, stage.others(slot))
    stage.same(after, before, [slot], since=at + 2, source="the next occupant of a slot that did not fail")
    judge.taken(len(after.live(slot, epoch=1)), "frames of the next occupant")


def _tick(stage: Stage, times: int = 1, pcm: torch.Tensor | None = None) -> list[Frame]:
    """Ticks in which all hear silence, unless `pcm` is given; the frames of the last."""
    engine = stage.engine
    frames: list[Frame] = []
    silence = torch.zeros(engine.slots, engine.frame_size)
    for _ in range(times):
        frames = engine.step(silence if pcm is None else pcm)
    return frames


def _end(stage: Stage, ways: dict[int, str]) -> None:
    """Each slot's session ends its own way, and the slot is free."""
    engine = stage.engine
    pcm = torch.zeros(engine.slots, engine.frame_size)
    for slot, how in ways.items():
        if how == "fail":
            pcm[slot, 0] = math.nan
        elif how == "recycle":
            engine.recycle(slot, DEFAULT)
        else:
            getattr(engine, how)(slot)
    # What was still to be said is given; then DRAINED.
    _tick(stage, pcm=pcm)
    frames = _tick(stage, times=engine.delay + 1)
    for slot, how in ways.items():
        if how == "recycle":
            engine.cancel(slot)
        else:
            stage.judge.equal(frames[slot].phase, Phase.FREE, f"phase of slot {slot} after: {how}")


def _check_converses(stage: Stage) -> None:
    """Every slot, each with a session that is in prefill or live, gives frames before long."""
    engine = stage.engine
    frames = _tick(stage, times=engine.prefill_ticks(DEFAULT) + engine.delay + 1)
    stage.judge.equal([frame.phase for frame in frames], [Phase.LIVE] * engine.slots, "phases of the slots")
