"""Wrong answers to calls that ask for what there is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.duplex.protocol import Frame, Session
from harness.duplex.reference.engine import BOOT
from harness.duplex.reference.inlet import Input
from harness.duplex.wrong_inputs.register import wrong_input


@wrong_input("duplex/malformed-is-silence", "inlet:Inlet.read", "duplex.input.shape")
def malformed_is_silence(original: Any, inlet: Any, pcm: Any, *how: Any) -> Input:
    """Samples of another shape or dtype are taken for silence."""
    try:
        return original(inlet, pcm, *how)
    except ValueError:
        return original(inlet, torch.zeros(inlet._slots, 1920), *how)


@wrong_input(
    "duplex/moves-then-refuses",
    "engine:ReferenceEngine.step",
    "duplex.input.shape",
    "duplex.input.live",
    "duplex.input.valid_samples",
    raises=(ValueError,),
)
def moves_then_refuses(original: Any, engine: Any, *given: Any) -> list[Frame]:
    """A step that is refused is a tick all the same."""
    try:
        return original(engine, *given)
    except ValueError:
        original(engine, engine._silence)
        raise


@wrong_input("duplex/pauses-padded", "inlet:Inlet.taking_part", "duplex.input.live")
def pauses_padded(original: Any, inlet: Any, live: Sequence[bool] | None) -> tuple[bool, ...]:
    """Slots of which nothing is said take part."""
    return original(inlet, None if live is None else [*live, *[True] * inlet._slots][: inlet._slots])


@wrong_input("duplex/lengths-clamped", "inlet:Inlet.lengths", "duplex.input.valid_samples")
def lengths_clamped(original: Any, inlet: Any, lengths: Sequence[int] | None) -> tuple[int, ...]:
    """Valid samples that are below 0 or beyond the frame are taken for the nearest that are not."""
    return original(inlet, None if lengths is None else [min(max(length, 0), 1920) for length in lengths])


@wrong_input(
    "duplex/slots-wrap",
    "engine:ReferenceEngine.checked",
    "duplex.input.slot",
    "duplex.input.slot_left",
    "duplex.input.slot_finished",
    "duplex.input.slot_cancelled",
)
def slots_wrap(original: Any, engine: Any, slot: int) -> int:
    """Slots are counted round, so that -1 is the last."""
    return original(engine, slot % engine.slots)


@wrong_input("duplex/unknown-persona-is-default", "prompt:Prompter.prompt", "duplex.input.persona")
def unknown_persona_is_default(original: Any, prompter: Any, session: Session) -> Any:
    """An unknown persona is taken for the default."""
    try:
        return original(prompter, session)
    except ValueError:
        return original(prompter, Session(voice=session.voice))


@wrong_input("duplex/unknown-voice-is-default", "prompt:Prompter.voice_of", "duplex.input.voice")
def unknown_voice_is_default(original: Any, prompter: Any, session: Session) -> str:
    """An unknown voice is taken for the default."""
    voice = original(prompter, session)
    return voice if voice in prompter.voices else prompter.voices[0]


@wrong_input("duplex/leaves-then-refuses", "engine:ReferenceEngine.recycle", "duplex.input.persona", "duplex.input.voice")
def leaves_then_refuses(original: Any, engine: Any, slot: int, session: Session) -> None:
    """The occupant is gone before the next one is looked at."""
    engine._leave(slot)
    original(engine, slot, session)


@wrong_input("duplex/admits-over-the-first", "engine:ReferenceEngine.admit", "duplex.input.full")
def admits_over_the_first(original: Any, engine: Any, session: Session) -> int:
    """A full engine gives a session the first slot, whose occupant is gone."""
    if engine.occupancy.free() is None:
        engine.release(0)
    return original(engine, session)


@wrong_input("duplex/opens-by-itself", "engine:ReferenceEngine.must_be_open", "duplex.input.closed")
def opens_by_itself(original: Any, engine: Any) -> None:
    """An engine that is not open is opened by its first step."""
    if not engine._is_open and not engine._is_closed:
        engine.open()
    original(engine)


@wrong_input("duplex/closes-once", "engine:ReferenceEngine.close", "duplex.input.closed", raises=(RuntimeError,))
def closes_once(original: Any, engine: Any) -> None:
    """Closing a closed engine is an error."""
    engine.must_be_open()
    original(engine)


@wrong_input("duplex/refused-session-takes-slot", "engine:ReferenceEngine._prompt", "duplex.input.admitted")
def refused_session_takes_slot(original: Any, engine: Any, session: Any) -> Any:
    """A slot is taken before it is known whether the session can be."""
    free = engine.occupancy.free()
    if free is not None:
        engine._seat(free, BOOT, original(engine, BOOT))
    prompt = original(engine, session)
    if free is not None:
        engine._leave(free)
    return prompt


@wrong_input("duplex/refused-step-swallows", "inlet:Inlet.read", "duplex.input.while_ending")
def refused_step_swallows(original: Any, inlet: Any, pcm: Any, *how: Any) -> Any:
    """A step that is refused eats the next one: nobody is left to be given anything of it."""
    try:
        given = original(inlet, pcm, *how)
    except ValueError:
        inlet.eaten = True
        raise
    eaten, inlet.eaten = vars(inlet).get("eaten", False), False
    return replace(given, live=(False, *given.live[1:])) if eaten else given


@wrong_input("duplex/padding-cleared-in-place", "inlet:Inlet.unpadded", "duplex.delivery.input_untouched")
def padding_cleared_in_place(original: Any, audio: Any, length: int) -> Any:
    """The padding is made silence in the caller's own buffer."""
    audio[length:] = 0.0
    return original(audio, length)


@wrong_input("duplex/seed-0-is-greedy", "slots:RowTable.seat", "duplex.history.seed")
def seed_0_is_greedy(original: Any, table: Any, row: int, seed: int | None) -> None:
    """A seed of 0 is taken for none."""
    original(table, row, seed or None)


@wrong_input("duplex/strides-ignored", "inlet:Inlet.read", "duplex.input.layout")
def strides_ignored(original: Any, inlet: Any, pcm: Any, *how: Any) -> Input:
    """Samples are read row by row from where they begin, however they lie."""
    flat = torch.as_strided(pcm, pcm.shape, (pcm.shape[1], 1)) if isinstance(pcm, torch.Tensor) and not pcm.is_contiguous() else pcm
    return original(inlet, flat, *how)
