"""A recycled slot begins anew: what it gives is what a fresh one gives, whoever was there before, and whenever it joined."""

import math
from collections.abc import Callable
from dataclasses import replace

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge, first_difference
from harness.duplex.driver import Played
from harness.duplex.protocol import Frame, Phase, Session
from harness.duplex.script import Event, Recycle, Script
from harness.duplex.sounds import Noise, Spoiled
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=4, suite="duplex-cpu")
register_cuda_ci(est_time=40, suite="duplex-h100")

SHOWN = 6
"""Differences that are recorded as figures: the seed prints six."""


@claim("duplex.replay.opening", source="spec 1.2: the first frame above 5e-2 at index 4 or later, the first four below 2e-2")
def test_opening(stage: Stage, judge: Judge, workload: Workload) -> None:
    """A recycled slot opens as a fresh one does, to the seed's tolerances."""
    slot, at = workload.recycled, workload.recycle_at
    untouched = stage.script(at=at, after=workload.live_ticks)
    before, [after] = stage.controlled(untouched, untouched.at(at, Recycle(slot)))
    fresh = [frame.audio for frame in before.of(slot) if frame.audio is not None][: workload.live_ticks]
    reborn = [frame.audio for frame in after.of(slot)[at:] if frame.audio is not None][: workload.live_ticks]
    judge.demand(len(reborn) >= workload.at_least, got=f"{len(reborn)} frames", expected=f"at least {workload.at_least}")

    apart = [float((mine - theirs).abs().max()) for mine, theirs in zip(reborn, fresh, strict=False)]
    late = next((number for number, by in enumerate(apart) if not by <= workload.later_above), len(apart))
    judge.figure("opening frames at noise level", late, "frames", workload.later)
    for number, by in enumerate(apart[:SHOWN]):
        judge.figure(f"difference of frame {number}", by, "amplitude", workload.opening_below if number < workload.opening else None)
    opening = max(apart[: workload.opening], default=math.nan)
    judge.demand(
        late >= workload.later, got=f"frame {late} differs by over {workload.later_above}", expected=f"none before {workload.later}"
    )
    judge.demand(opening < workload.opening_below, got=f"the opening differs by {opening}", expected=f"less than {workload.opening_below}")


@claim("duplex.replay.exact", source="spec 1.2: an engine that declares exact replay owes bit identity")
@requires(Duplex.EXACT_REPLAY)
def test_exact(stage: Stage, workload: Workload) -> None:
    """A recycled slot gives a fresh one's output bit for bit, from its first tick after the prefill on: text, tokens and audio."""
    slot, at = workload.recycled, workload.recycle_at
    untouched = stage.script(at=at, after=workload.live_ticks)
    before, [after] = stage.controlled(untouched, untouched.at(at, Recycle(slot)))
    reborn = conversation(after, slot, epoch=1)

    stage.same_session(reborn, before.of(slot)[: len(reborn)], f"slot {slot}, recycled", source="the same slot fresh from open")


@claim("duplex.replay.after_wrap", source="FAULTS a-recycle-kv-visible, where the predecessor had filled its whole ring")
@requires(Duplex.EXACT_REPLAY)
def test_after_wrap(stage: Stage, workload: Workload, wrapped: int) -> None:
    """A successor of a conversation that filled its whole window gives a fresh slot's output bit for bit."""
    slot = workload.recycled
    untouched = stage.script(at=wrapped)
    before, [after] = stage.controlled(untouched, untouched.at(wrapped, Recycle(slot)))
    reborn = conversation(after, slot, epoch=1)

    stage.same_session(reborn, before.of(slot)[: len(reborn)], f"slot {slot}, recycled late", source="the same slot fresh from open")


@claim("duplex.replay.predecessor", source="issue: what the former occupant said cannot be heard; waybarrios/vllm-mlx#385")
def test_predecessor(stage: Stage, workload: Workload) -> None:
    """What a slot's former occupant heard and was, its voice, persona and draws, changes no bit of its successor's output."""
    sessions = stage.sessions()
    leaves = max(map(stage.engine.prefill_ticks, sessions)) + workload.act_at
    formers = [(session, Noise(number)) for number, session in enumerate(sessions)]
    # In as few runs as go: a former occupant of another kind in each slot.
    for first in range(0, len(formers), len(stage.slots)):
        here = dict(zip(stage.slots, formers[first:], strict=False))
        script = stage.script(at=leaves).at(leaves, *(Recycle(slot, sound=stage.tone(slot)) for slot in here))
        touched = script
        for slot, former in here.items():
            touched = at_start(touched, Recycle(slot, *former))
        before, [after] = stage.controlled(script, touched)

        for slot in here:
            successor = after.frames[-1][slot].epoch
            stage.same_session(after.of(slot, epoch=successor), before.of(slot, epoch=1), f"slot {slot}", source="another predecessor")
            stage.differs(after, before, slot)


@claim("duplex.replay.after_failure", source="FAULTS a-nan-row-spreads: a later session is NaN; local-inference-lab/vllm#621")
def test_after_failure(stage: Stage, workload: Workload) -> None:
    """Who takes a slot whose former occupant sent NaN or infinite samples gives what the successor of an orderly session gives."""
    slot, at = workload.recycled, workload.act_at
    script = stage.script().at(at, Recycle(slot, sound=stage.tone(slot)))
    spoiled = [script.hearing({slot: Spoiled(stage.tone(slot), at // 2, value)}) for value in (math.nan, math.inf)]
    before, runs = stage.controlled(script, *spoiled)

    for after in runs:
        stage.same(after, before, [slot], since=at, source="the successor of an orderly session")
        stage.shows(after, before, slot)


@claim("duplex.replay.join_tick", source="vllm-omni runtime.py voice_end: a row's delay ring is rotated to the engine's tick")
@requires(Duplex.EXACT_REPLAY)
def test_join_tick(stage: Stage, workload: Workload) -> None:
    """A session gives the same bits whichever tick it joined on."""
    slot, first = workload.recycled, workload.act_at
    joins = [stage.script(at=at).at(at, Recycle(slot)) for at in range(first, first + workload.ring_phases)]
    before, runs = stage.controlled(*joins)

    for at, after in zip(range(first + 1, first + workload.ring_phases), runs, strict=True):
        joined = before.of(slot, epoch=1)
        stage.same_session(after.of(slot, epoch=1), joined, f"slot {slot}, joined at tick {at}", source=f"its session from tick {first} on")


@claim("duplex.replay.second_boot", source="FAULTS a-warmup-state-survives: the first session after a boot is not the second")
def test_second_boot(build_stage: Callable[..., Stage], judge: Judge) -> None:
    """The first sessions after an engine was built give the bits of those after the next open."""
    stage = build_stage()
    script = stage.script()
    first, second = stage.play(script), stage.play(script)
    if first_difference(second, first) is not None:
        # Either the boot left something behind, or the engine does not repeat itself: another new one tells.
        stage.engine.close()
        again = build_stage().play(script)
        runs = iter((first, again))
        judge.controlled("first opens", lambda: next(runs), dict)

    judge.stimulus = "the second open of a new engine"
    stage.same(second, first, stage.slots, source="its first open")


@claim("duplex.replay.voice_forgotten", source="vllm-omni runtime.py open_session: the default voice is resolved anew for each session")
@requires(Duplex.VOICE)
def test_voice_forgotten(build_stage: Callable[..., Stage]) -> None:
    """The voice of one session reaches no later default session: not in its slot, not in another, not after the next open."""
    stage = build_stage()
    check_forgotten(stage, Session(voice=stage.engine.voices[1]))


@claim("duplex.replay.persona_forgotten", source="vllm-omni runtime.py open_session, for the system prompt's text")
@requires(Duplex.PERSONA)
def test_persona_forgotten(build_stage: Callable[..., Stage]) -> None:
    """The persona of one session reaches no later default session: not in its slot, not in another, not after the next open."""
    stage = build_stage()
    check_forgotten(stage, Session(persona=stage.engine.personas[1]))


def check_forgotten(stage: Stage, special: Session) -> None:
    """On an engine that has seen no such session: default sessions before it, beside it and behind it are alike."""
    slot, last = stage.workload.recycled, stage.slots[-1]
    ordinary = stage.script()
    behind = stage.workload.act_at
    for tick, then in ((behind // 2, last), (behind, slot)):
        ordinary = ordinary.at(tick, Recycle(then, sound=stage.tone(then)))
    # The control comes first: an engine that keeps the voice for ever would not repeat itself afterwards.
    before, _ = stage.controlled(at_start(ordinary, Recycle(slot)))
    beside = stage.play(at_start(ordinary, Recycle(slot, special)))
    after = stage.play(before.script)

    stage.same(beside, before, stage.others(slot), source="the run before such a session")
    stage.same(beside, before, [slot], since=behind, source="the run before such a session")
    stage.same(after, before, stage.slots, source="the run before such a session")
    stage.judge.taken(len(beside.live(slot, epoch=2)), f"live frames of slot {slot} after {special}")


def at_start(script: Script, event: Event) -> Script:
    """The script with an event before its first tick, and before its other events."""
    return replace(script, events=((0, event), *script.events))


def conversation(run: Played, slot: int, *, epoch: int) -> list[Frame]:
    """What an occupant gave from the end of its prefill on."""
    return [frame for frame in run.of(slot, epoch=epoch) if frame.phase is not Phase.PREFILL]
