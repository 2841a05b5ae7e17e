"""Wrong answers about what reaches the client."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.duplex.protocol import Frame
from harness.duplex.reference.inlet import Input
from harness.duplex.reference.slots import Occupant
from harness.duplex.wrong_inputs.register import wrong_input


@wrong_input("duplex/audio-off-scale", "outlet:Outlet.give", "duplex.delivery.audio")
def audio_off_scale(
    original: Any, outlet: Any, slot: int, occupant: Occupant, mark: Any, tokens: torch.Tensor, audio: torch.Tensor
) -> Frame:
    """Audio has an offset that leaves the scale."""
    return original(outlet, slot, occupant, mark, tokens, audio + 2)


@wrong_input("duplex/no-word-is-minus-one", "outlet:Outlet.give", "duplex.delivery.tokens")
def no_word_is_minus_one(original: Any, outlet: Any, *given: Any) -> Frame:
    """The token of a frame without a word is -1."""
    frame = original(outlet, *given)
    return replace(frame, tokens=torch.where(frame.tokens == 0, -1, frame.tokens))


@wrong_input("duplex/gone-before-a-tick", "slots:Slots.vacate", "duplex.delivery.counted")
def gone_before_a_tick(original: Any, slots: Any, slot: int) -> None:
    """An occupant that was gone before its first tick had no epoch."""
    occupant = slots.occupants[slot]
    slots._epochs[slot] -= occupant is not None and occupant.position == 0
    original(slots, slot)


@wrong_input("duplex/one-buffer", "outlet:Outlet.give", "duplex.delivery.kept")
def one_buffer(original: Any, outlet: Any, slot: int, occupant: Occupant, mark: Any, tokens: torch.Tensor, audio: torch.Tensor) -> Frame:
    """The audio of each slot is given in one buffer, tick by tick."""
    buffer = vars(outlet).setdefault("buffers", {}).setdefault(slot, torch.empty_like(audio))
    return original(outlet, slot, occupant, mark, tokens, buffer.copy_(audio))


@wrong_input("duplex/clamped-in-place", "inlet:Inlet.read", "duplex.delivery.input_untouched")
def clamped_in_place(original: Any, inlet: Any, pcm: Any, *how: Any) -> Input:
    """Loud samples are made softer in the caller's own buffer."""
    return original(inlet, pcm.clamp_(-0.1, 0.1) if isinstance(pcm, torch.Tensor) else pcm, *how)


@wrong_input("duplex/heard-a-tick-late", "inlet:Inlet.read", "duplex.delivery.input_untouched")
def heard_a_tick_late(original: Any, inlet: Any, pcm: Any, *how: Any) -> Input:
    """A buffer is kept as it is, and heard on the next tick."""
    given = original(inlet, pcm, *how)
    late, inlet.late = vars(inlet).get("late"), given.audio
    return given if late is None else replace(given, audio=late)
