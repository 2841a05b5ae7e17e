"""Wrong answers about a recycled slot: it disturbs others, or does not begin anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.duplex.protocol import Session
from harness.duplex.reference.words import PAD
from harness.duplex.wrong_inputs.crosstalk import wipe
from harness.duplex.wrong_inputs.register import wrong_input


@wrong_input("duplex/reset-of-two-rows", "tick:Tick.reset", "duplex.isolation.recycle")
def reset_of_two_rows(original: Any, tick: Any, rows: torch.Tensor) -> None:
    """A row is reset together with the next one."""
    original(tick, rows | rows.roll(1))


@wrong_input("duplex/last-resets-first", "engine:ReferenceEngine._renew", "duplex.isolation.anywhere")
def last_resets_first(original: Any, engine: Any, slot: int, session: Session, prompt: Any) -> None:
    """A recycle of the last slot empties the row of the first."""
    original(engine, slot, session, prompt)
    if slot == engine.slots - 1:
        wipe(engine, 0)


@wrong_input("duplex/unready-recycle", "engine:ReferenceEngine.recycle", "duplex.isolation.back_to_back")
def unready_recycle(original: Any, engine: Any, slot: int, session: Session) -> None:
    """A slot that is recycled in its prefill empties the next slot's row."""
    occupant = engine.occupancy.occupants[slot]
    original(engine, slot, session)
    if occupant is not None and occupant.in_prefill:
        wipe(engine, slot + 1)


@wrong_input("duplex/second-of-a-tick", "engine:ReferenceEngine._renew", "duplex.isolation.two_at_once")
def second_of_a_tick(original: Any, engine: Any, slot: int, session: Session, prompt: Any) -> None:
    """The second slot that is recycled on one tick empties the next slot's row."""
    original(engine, slot, session, prompt)
    occupants = engine.occupancy.occupants
    if any(other is not None and other.position == 0 for number, other in enumerate(occupants) if number != slot):
        wipe(engine, slot + 1)


@wrong_input("duplex/prefills-restart", "engine:ReferenceEngine.recycle", "duplex.isolation.during_prefill")
def prefills_restart(original: Any, engine: Any, slot: int, session: Session) -> None:
    """A recycle begins the prefill of every slot anew that is in one."""
    original(engine, slot, session)
    for occupant in engine.occupancy.occupants:
        if occupant is not None and occupant.in_prefill:
            occupant.position = 0


@wrong_input("duplex/full-rings-emptied", "engine:ReferenceEngine._renew", "duplex.isolation.after_wrap")
def full_rings_emptied(original: Any, engine: Any, slot: int, session: Session, prompt: Any) -> None:
    """A recycle empties the row of every slot whose window is full."""
    original(engine, slot, session, prompt)
    for number, occupant in enumerate(engine.occupancy.occupants):
        if occupant is not None and occupant.position >= engine.window:
            wipe(engine, number)


@wrong_input("duplex/decoder-not-renewed", "model:State.reset", "duplex.replay.exact")
def decoder_not_renewed(original: Any, state: Any, rows: torch.Tensor) -> None:
    """A recycled slot speaks with the decoder's context of its former occupant."""
    for part in (state.encoder, state.language) if not rows.all() else (state.encoder, state.language, state.decoder):
        part.reset(rows)


@wrong_input("duplex/opens-with-a-click", "model:State.reset", "duplex.replay.opening")
def opens_with_a_click(original: Any, state: Any, rows: torch.Tensor) -> None:
    """The decoder of a recycled slot begins with full carries, that of a fresh one with empty ones."""
    original(state, rows)
    for row in [] if rows.all() else rows.nonzero().flatten().tolist():
        for carry in state.decoder.tiles[row // state.decoder.size].carries:
            carry[row % state.decoder.size] = 1.0


@wrong_input("duplex/encoder-not-renewed", "model:State.reset", "duplex.replay.predecessor")
def encoder_not_renewed(original: Any, state: Any, rows: torch.Tensor) -> None:
    """A recycled slot hears with the encoder's context of its former occupant."""
    for part in (state.decoder, state.language) if not rows.all() else (state.encoder, state.language, state.decoder):
        part.reset(rows)


@wrong_input("duplex/full-ring-kept", "engine:ReferenceEngine.recycle", "duplex.replay.after_wrap")
def full_ring_kept(original: Any, engine: Any, slot: int, session: Session) -> None:
    """A slot whose window is full keeps its keys and values when it is recycled."""
    former, row = engine.occupancy.occupants[slot], engine.occupancy.table.row_of[slot]
    tiles = engine.tick.state.language
    parts = list(tiles.tiles[row // tiles.size].parts())
    held = [part[row % tiles.size].clone() for part in parts]
    original(engine, slot, session)
    if former is not None and former.position >= engine.window:
        for part, kept in zip(parts, held, strict=True):
            part[row % tiles.size] = kept


@wrong_input("duplex/free-slot-not-cleaned", "engine:ReferenceEngine.recycle", "duplex.replay.after_failure")
def free_slot_not_cleaned(original: Any, engine: Any, slot: int, session: Session) -> None:
    """A free slot that is recycled is taken as it was left."""
    if engine.occupancy.occupants[slot] is None:
        engine._seat(slot, session, engine.prompter.prompt(session))
    else:
        original(engine, slot, session)


@wrong_input("duplex/late-joiner", "engine:ReferenceEngine._seat", "duplex.replay.join_tick")
def late_joiner(original: Any, engine: Any, slot: int, session: Session, prompt: Any) -> None:
    """Who joins on every fourth tick has a silence more in the system prompt."""
    longer = replace(prompt, texts=(*prompt.texts, PAD))
    original(engine, slot, session, longer if engine._ticks % 4 == 3 else prompt)


@wrong_input("duplex/first-boot-unwiped", "engine:ReferenceEngine.wipe", "duplex.replay.second_boot")
def first_boot_unwiped(original: Any, engine: Any) -> None:
    """What the warm-up leaves in the rows is wiped from the second open on."""
    if engine._is_open:
        original(engine)


@wrong_input("duplex/voice-kept", "prompt:Prompter.voice_of", "duplex.replay.voice_forgotten")
def voice_kept(original: Any, prompter: Any, session: Session) -> str:
    """A voice that a session asked for is the default from then on."""
    if session.voice is not None:
        prompter.kept_voice = session.voice
    return getattr(prompter, "kept_voice", original(prompter, session))


@wrong_input("duplex/persona-kept", "prompt:Prompter.persona_of", "duplex.replay.persona_forgotten")
def persona_kept(original: Any, prompter: Any, session: Session) -> str:
    """A persona that a session asked for is the default from then on."""
    if session.persona is not None:
        prompter.kept_persona = session.persona
    return getattr(prompter, "kept_persona", original(prompter, session))
