"""Wrong answers about a session's own history: ticks that it was left out of, and what it was given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from harness.duplex.protocol import Frame, Phase, Session
from harness.duplex.wrong_inputs.register import wrong_input


@wrong_input("duplex/carries-idle-on", "codec:keep", "duplex.pause.talking")
def carries_idle_on(original: Any, carries: Any, after: Any, active: torch.Tensor) -> None:
    """The convolutions of a row that takes no part go on."""
    original(carries, after, torch.ones_like(active))


@wrong_input("duplex/pause-swallows-first-word", "engine:ReferenceEngine._part", "duplex.pause.before_first_word")
def pause_swallows_first_word(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """A conversation that is paused before its first frame is out counts the pause as a tick."""
    part = original(engine, slot, given)
    occupant = engine.occupancy.occupants[slot]
    if isinstance(part, Frame) and part.phase is Phase.PAUSED and not occupant.in_prefill and occupant.heard <= engine.delay:
        occupant.position += 1
    return part


@wrong_input("duplex/pause-skips-prompt", "engine:ReferenceEngine._part", "duplex.pause.prefill")
def pause_skips_prompt(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """A pause in the prefill leaves steps of the system prompt out."""
    part = original(engine, slot, given)
    occupant = engine.occupancy.occupants[slot]
    if isinstance(part, Frame) and part.phase is Phase.PAUSED and occupant.in_prefill:
        occupant.position += 1
    return part


@wrong_input("duplex/nobody-is-everybody", "inlet:Inlet.taking_part", "duplex.pause.everyone")
def nobody_is_everybody(original: Any, inlet: Any, live: Any) -> tuple[bool, ...]:
    """A tick that leaves every slot out is taken for one that leaves none out."""
    flags = original(inlet, live)
    return flags if any(flags) else (True,) * len(flags)


@wrong_input("duplex/full-ring-goes-on", "ring:RingKV.advance", "duplex.pause.after_wrap")
def full_ring_goes_on(original: Any, ring: Any, active: torch.Tensor) -> None:
    """A row whose ring is full moves on, whether it takes part or not."""
    original(ring, active | (ring.positions >= ring.context))


@wrong_input("duplex/positions-start-again", "ring:RingKV.visit", "duplex.history.one_pass", "duplex.history.one_pass_wrapped")
def positions_start_again(original: Any, ring: Any, active: torch.Tensor) -> Any:
    """Keys are rotated by a position that starts again every 16 ticks."""
    visit = original(ring, active)
    return visit._replace(positions=visit.positions % 16)


@wrong_input("duplex/deaf", "engine:ReferenceEngine._heard", "duplex.history.caller")
def deaf(original: Any, engine: Any, slot: int, given: Any) -> np.ndarray:
    """The caller is not heard."""
    return np.zeros_like(original(engine, slot, given))


@wrong_input("duplex/voice-ignored", "prompt:Prompter.voice_of", "duplex.history.voice")
def voice_ignored(original: Any, prompter: Any, session: Session) -> str:
    """Every session speaks in the default voice."""
    return prompter.voices[0]


@wrong_input("duplex/persona-ignored", "prompt:Prompter.persona_of", "duplex.history.persona")
def persona_ignored(original: Any, prompter: Any, session: Session) -> str:
    """Every session is the default persona."""
    return prompter.personas[0]


@wrong_input("duplex/decoder-forgets", "codec:Codec._decode", "duplex.history.sound")
def decoder_forgets(original: Any, codec: Any, tile: Any, codes: Any, active: Any) -> torch.Tensor:
    """Every frame is spoken as if nothing had been said before it."""
    for carry in tile.carries:
        carry.zero_()
    return original(codec, tile, codes, active)


@wrong_input("duplex/pause-draws-on", "engine:ReferenceEngine._part", "duplex.pause.sampled")
def pause_draws_on(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """A sampled session that is paused draws all the same."""
    part = original(engine, slot, given)
    draws = engine.occupancy.table.draws(engine.occupancy.table.row_of[slot])
    if isinstance(part, Frame) and part.phase is Phase.PAUSED and draws is not None:
        draws.fill(torch.empty(8))
    return part


@wrong_input("duplex/pause-begins-text-anew", "engine:ReferenceEngine._part", "duplex.conversation.interrupted")
def pause_begins_text_anew(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """The word behind a pause is given like a first one, without the space before it."""
    part = original(engine, slot, given)
    if isinstance(part, Frame) and part.phase is Phase.PAUSED:
        engine._outlet.streams[slot].spoken = False
    return part


@wrong_input("duplex/long-pause-counts", "engine:ReferenceEngine._part", "duplex.pause.talking")
def long_pause_counts(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """The ninth tick of a pause is a tick of the conversation."""
    part = original(engine, slot, given)
    occupant = engine.occupancy.occupants[slot]
    if occupant is not None:
        paused = isinstance(part, Frame) and part.phase is Phase.PAUSED
        occupant.paused = vars(occupant).get("paused", 0) + 1 if paused else 0
        occupant.position += occupant.paused == 9
    return part


@wrong_input("duplex/drain-ignores-pause", "engine:ReferenceEngine._part", "duplex.pause.ending")
def drain_ignores_pause(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """A slot whose input has ended is drained whether or not it is paused."""
    stream = engine._outlet.streams.get(slot)
    return original(engine, slot, replace(given, live=(True,) * engine.slots) if stream is not None and stream.ending else given)
