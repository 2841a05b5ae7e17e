"""Wrong answers about sessions that end: by themselves, by a call, by an error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from harness.duplex.protocol import Frame
from harness.duplex.reference.slots import Occupant
from harness.duplex.wrong_inputs.register import wrong_input


@wrong_input("duplex/mute-drain", "outlet:Outlet.give", "duplex.finish.as_silence")
def mute_drain(original: Any, outlet: Any, slot: int, occupant: Occupant, mark: Any, tokens: torch.Tensor, audio: torch.Tensor) -> Frame:
    """What is given after the end of the input is mute."""
    return original(outlet, slot, occupant, mark, tokens, torch.zeros_like(audio) if outlet.is_ending(slot) else audio)


@wrong_input("duplex/end-unnoticed-in-prefill", "engine:ReferenceEngine.finish", "duplex.finish.in_prefill")
def end_unnoticed_in_prefill(original: Any, engine: Any, slot: int) -> None:
    """Input that ends in prefill goes on."""
    if not engine.occupancy.occupants[slot].in_prefill:
        original(engine, slot)


@wrong_input("duplex/cancel-drains", "engine:ReferenceEngine.cancel", "duplex.cancel.frees")
def cancel_drains(original: Any, engine: Any, slot: int) -> None:
    """A cancelled occupant is given what it is still owed."""
    engine.finish(slot)


@wrong_input("duplex/cancels-somebody", "engine:ReferenceEngine.cancel", "duplex.cancel.again")
def cancels_somebody(original: Any, engine: Any, slot: int) -> None:
    """Cancelling a free slot cancels the first that is occupied."""
    occupied = engine.occupancy.occupied()
    original(engine, slot if slot in occupied else occupied[0])


@wrong_input("duplex/streams-kept", "outlet:Outlet.forget", "duplex.slots.recycled_often", "duplex.slots.come_back")
def streams_kept(original: Any, outlet: Any, slot: int) -> None:
    """What an occupant was owed is kept after it has left."""
    stream = outlet.streams.get(slot)
    original(outlet, slot)
    if stream is not None:
        outlet.streams[-1 - len(outlet.streams)] = stream


@wrong_input("duplex/fails-without-a-reason", "outlet:Outlet.last_word", "duplex.slots.failure", "duplex.slots.failure_inside")
def fails_without_a_reason(original: Any, *given: Any) -> Frame:
    """A session that failed does not say why."""
    frame = original(*given)
    return replace(frame, error=None if frame.error is None else "")


@wrong_input("duplex/sessions-remembered", "slots:Slots.vacate", "duplex.slots.memory")
def sessions_remembered(original: Any, slots: Any, slot: int) -> None:
    """Who has left is kept in a list that nobody reads."""
    vars(slots).setdefault("left", []).append(slots.occupants[slot])
    original(slots, slot)


@wrong_input("duplex/last-prompt-tick-goes-on", "engine:ReferenceEngine._turn", "duplex.finish.in_prefill")
def last_prompt_tick_goes_on(original: Any, engine: Any, slot: int, occupant: Any, given: Any) -> Any:
    """Input that ends before the last tick of the prefill is not noticed until the next."""
    stream = engine._outlet.streams[slot]
    ending, last = stream.ending, occupant.position == len(occupant.prompt) - 1
    stream.ending = ending and not last
    try:
        return original(engine, slot, occupant, given)
    finally:
        stream.ending = ending


@wrong_input("duplex/second-end-drops-the-rest", "outlet:Outlet.end_input", "duplex.finish.twice")
def second_end_drops_the_rest(original: Any, outlet: Any, slot: int) -> None:
    """The end of an input, told again, takes what is still owed for all that was given."""
    if outlet.streams[slot].ending:
        outlet.streams[slot].owed = 0
    original(outlet, slot)


@wrong_input("duplex/short-frame-not-owed", "engine:ReferenceEngine.finish", "duplex.finish.short_frame")
def short_frame_not_owed(original: Any, engine: Any, slot: int) -> None:
    """Input that ends with a short frame is drained as if that frame had not been."""
    occupant = engine.occupancy.occupants[slot]
    if occupant.audio and not occupant.audio[-1][-1]:
        engine._outlet.streams[slot].owed -= 1
    original(engine, slot)


@wrong_input("duplex/nan-looked-for-everywhere", "engine:ReferenceEngine._part", "duplex.slots.unheard")
def nan_looked_for_everywhere(original: Any, engine: Any, slot: int, given: Any) -> Any:
    """A session ends where its row is not finite, whether or not anybody hears it."""
    occupant = engine.occupancy.occupants[slot]
    if occupant is not None and not np.isfinite(given.audio[slot]).all():
        return engine._end(slot, occupant, "not finite")
    return original(engine, slot, given)


@wrong_input("duplex/cancel-lets-drain", "engine:ReferenceEngine.cancel", "duplex.cancel.draining")
def cancel_lets_drain(original: Any, engine: Any, slot: int) -> None:
    """A session whose input has ended is not cancelled: its last frames are given."""
    if not engine._outlet.is_ending(slot):
        original(engine, slot)
