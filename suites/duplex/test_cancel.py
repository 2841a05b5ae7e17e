"""Occupants that are dropped, and what the next one hears of them: nothing."""

from collections.abc import Sequence
from dataclasses import replace

from fixtures.duplex import Stage
from fixtures.duplex_owed import check_phases
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.driver import Driver
from harness.duplex.protocol import Phase
from harness.duplex.script import DEFAULT, Event, Leave, Recycle, Script
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="duplex-cpu")
register_cuda_ci(est_time=20, suite="duplex-h100")

STAYS = ("live", "warm-up", "prefill")
"""Where an occupant is when its time is over."""


@claim("duplex.cancel.frees", source="protocol: no frame of it is given any more, and the slot is free")
@requires(Duplex.CANCEL)
def test_frees(stage: Stage) -> None:
    """A cancelled occupant gives no further frame, whether it was in prefill, in warm-up or live."""
    _check_frees(stage, STAYS)


@claim("duplex.cancel.draining", source="protocol: no frame of it is given any more, and the slot is free; here, while it is drained")
@requires(Duplex.CANCEL)
@requires(Duplex.FINISH)
def test_draining(stage: Stage) -> None:
    """An occupant that is cancelled after its input has ended gives no further frame."""
    _check_frees(stage, ["finished"])


@claim("duplex.cancel.again", source="protocol: cancel; a client that disconnects is often cancelled more than once")
@requires(Duplex.CANCEL)
def test_again(stage: Stage, judge: Judge) -> None:
    """Cancelling a slot that is free, or was just cancelled, changes nothing, whether it is refused or not."""
    once = Script(stage.engine.delay + 6, tuple(map(stage.tone, stage.slots))).at(2, Leave(0, "cancel"))
    expected = stage.play(once)
    driver = Driver(stage.engine, once)
    stage.engine.open()
    for tick in range(once.ticks):
        for event in once.on(tick):
            driver.do(event)
        if tick in (2, 4):
            judge.attempt(lambda: stage.engine.cancel(0))
        driver.step()

    stage.same(driver.played, expected, stage.slots, source="a run that cancels once")
    judge.equal(driver.played.frames[-1][0].phase, Phase.FREE, "phase of the cancelled slot")


@claim("duplex.cancel.recycled", source="vllm-omni#3745 (RFC: epoch fence), sglang-omni#1344 (review): a late frame reaches the next")
def test_recycled(stage: Stage) -> None:
    """A frame of an occupant that was recycled, in prefill, in warm-up or live, never reaches the next one, who begins anew."""
    _check_next(stage)


@claim("duplex.cancel.late_frame", source="vllm-omni#3745 (RFC: epoch fence), sglang-omni#1344 (review)")
@requires(Duplex.CANCEL)
def test_late_frame(stage: Stage) -> None:
    """A frame of an occupant that was cancelled, in prefill, in warm-up or live, never reaches the next one."""
    _check_next(stage, "cancel")


@claim("duplex.cancel.released", source="delayed-streams-modeling: a channel is taken by the next client; vllm-omni#3745")
@requires(Duplex.ADMISSION)
def test_released(stage: Stage) -> None:
    """A frame of an occupant that left, in prefill, in warm-up or live, never reaches the next one."""
    _check_next(stage, "release")


def _check_next(stage: Stage, how: str | None = None) -> None:
    """Slots whose occupants are at different points of their stay are recycled on one tick, the occupants having left by `how`."""
    at, where = _stays(stage, STAYS)
    prefill = stage.engine.prefill_ticks(DEFAULT)
    for script, slots in where:
        ticks = at + prefill + stage.engine.delay + 4
        leave: list[Event] = [Leave(slot, how) for slot in slots if how is not None]
        arrive: list[Event] = [Recycle(slot) for slot in slots]
        plain = Script(ticks, script.hears).at(at, *arrive)
        before, [after] = stage.controlled(plain, replace(script, ticks=ticks).at(at, *leave, *arrive))

        check_phases(stage, after)
        for slot in slots:
            mine, theirs = (run.of(slot)[at:] for run in (after, before))
            stage.same_session(mine, theirs, f"the next occupant of slot {slot}", source="one whose predecessor was live all the time")
            stage.judge.taken(sum(frame.phase is Phase.LIVE for frame in mine), f"frames of the next occupant of slot {slot}")


def _check_frees(stage: Stage, stays: Sequence[str]) -> None:
    at, where = _stays(stage, stays)
    for number, (script, slots) in enumerate(where):
        cancels = [Leave(slot, "cancel") for slot in slots]
        played = stage.play(replace(script, ticks=at + stage.engine.delay + 3).at(at, *cancels))

        check_phases(stage, played)
        stage.judge.taken(sum(f.phase is Phase.FREE for f in played.frames[-1]), f"free slots at the end of run {number}")


def _stays(stage: Stage, stays: Sequence[str]) -> tuple[int, list[tuple[Script, list[int]]]]:
    """A tick; and scripts, each with its slots, whose occupants are at these points of their stay then, in as few runs as go."""
    prefill = stage.engine.prefill_ticks(DEFAULT)
    at = prefill + stage.engine.delay + 2
    where = []
    for first in range(0, len(stays), len(stage.slots)):
        script = Script(at, tuple(map(stage.tone, stage.slots)))
        here = stays[first : first + len(stage.slots)]
        for slot, stay in enumerate(here):
            if stay == "warm-up":
                # Heard for the first time on the tick before.
                script = script.at(at - prefill - 1, Recycle(slot))
            elif stay == "prefill":
                script = script.at(at - 2, Recycle(slot))
            elif stay == "finished":
                script = script.at(at, Leave(slot, "finish"))
        where.append((script, list(range(len(here)))))
    return at, where
