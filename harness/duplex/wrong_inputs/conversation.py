"""Wrong answers in conversation, wrong answers that come too late, and wrong states that only a row of steps reaches."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from harness.duplex.protocol import Session
from harness.duplex.reference.slots import Occupant
from harness.duplex.reference.words import PAD
from harness.duplex.wrong_inputs.register import wrong_input


@wrong_input("duplex/wordless", "outlet:Outlet._piece", "duplex.conversation.letters", "duplex.conversation.known")
def wordless(original: Any, outlet: Any, stream: Any, token: int) -> str | None:
    """No word is ever given."""


@wrong_input("duplex/one-persona", "prompt:Prompter.persona_of", "duplex.conversation.known")
def one_persona(original: Any, prompter: Any, session: Session) -> str:
    """Everybody has the default persona."""
    return prompter.personas[0]


@wrong_input(
    "duplex/fills-the-silence",
    "outlet:Outlet._piece",
    "duplex.conversation.foreign",
    "duplex.conversation.silence",
    "duplex.conversation.paused",
)
def fills_the_silence(original: Any, outlet: Any, stream: Any, token: int) -> str | None:
    """The first frame without a word has one all the same."""
    return original(outlet, stream, 1 if token == PAD and not stream.spoken else token)


@wrong_input("duplex/listens-in-its-pause", "engine:ReferenceEngine._part", "duplex.conversation.paused")
def listens_in_its_pause(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """What is heard in a pause is kept, and heard after it in place of what is said then."""
    kept = vars(engine).setdefault("kept", {}).setdefault((slot, engine.occupancy.occupants[slot]), [])
    if not given.live[slot]:
        kept.append(given.audio[slot].copy())
    elif kept:
        given.audio[slot] = kept.pop(0)
    return original(engine, slot, given)


@wrong_input("duplex/slow-tick", "runner:Runner.run", "duplex.budget.tick")
def slow_tick(original: Any, runner: Any) -> Any:
    """One tick of ten takes longer than the audio in it."""
    runner.runs = vars(runner).get("runs", 0) + 1
    until = time.perf_counter() + (0.09 if runner.runs % 10 == 0 else 0)
    outcome = original(runner)
    while time.perf_counter() < until:
        pass
    return outcome


@wrong_input("duplex/pause-ends-prefill", "engine:ReferenceEngine._part", "duplex.schedule.short")
def pause_ends_prefill(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """A pause in prefill ends the prefill."""
    occupant: Occupant | None = engine.occupancy.occupants[slot]
    if occupant is not None and not given.live[slot] and occupant.in_prefill:
        occupant.position = len(occupant.prompt)
    return original(engine, slot, given)


@wrong_input("duplex/fifth-hears-next-door", "engine:ReferenceEngine._heard", "duplex.schedule.long")
def fifth_hears_next_door(original: Any, engine: Any, slot: int, given: Any) -> np.ndarray:
    """From a slot's fifth occupant on, what is said in the next slot is heard."""
    epoch = engine.occupancy.occupants[slot].epoch
    return original(engine, slot if epoch < 4 else (slot + 1) % engine.slots, given)


@wrong_input("duplex/text-a-frame-late", "outlet:Outlet._piece", "duplex.conversation.text_of_tokens")
def text_a_frame_late(original: Any, outlet: Any, stream: Any, token: int) -> str | None:
    """A frame is given the piece of text of the frame before it."""
    before = vars(stream).get("token", token)
    stream.token = token
    return original(outlet, stream, before)


@wrong_input("duplex/speech-over-full-scale", "outlet:Outlet.give", "duplex.conversation.full_scale")
def speech_over_full_scale(original: Any, outlet: Any, slot: int, occupant: Any, mark: Any, tokens: Any, audio: Any) -> Any:
    """What is loud enough to be speech is made louder than full scale."""
    peak = float(audio.abs().max())
    return original(outlet, slot, occupant, mark, tokens, audio * (1.2 / peak) if peak > 0.05 else audio)
