"""Faults of what is heard and given: padding, the gate of frames, the end of a stream, and the end of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.duplex.faults.register import catalogued
from harness.duplex.protocol import Frame, Phase
from harness.duplex.reference.outlet import Stream


@catalogued(
    "tail-overslice",
    "inlet:Inlet.lengths",
    claims=["duplex.finish.valid_samples"],
    source="sglang-omni#319 (review), vllm-omni#4525 (#4466)",
)
def tail_overslice(original: Any, inlet: Any, valid_samples: Sequence[int] | None) -> tuple[int, ...]:
    """Every slot's frame is cut at the length of the longest."""
    lengths = original(inlet, valid_samples)
    return (max(lengths),) * len(lengths)


@catalogued(
    "no-pad-mask",
    "inlet:Inlet.unpadded",
    claims=["duplex.finish.valid_samples"],
    source="transformers#43377, #43378",
)
def no_pad_mask(original: Any, audio: np.ndarray, length: int) -> np.ndarray:
    """Padding is heard like speech."""
    return original(audio, len(audio))


@catalogued(
    "warmup-frames-emitted",
    "outlet:Outlet.passes",
    claims=["duplex.delivery.phases"],
    source="vllm-omni runtime.py _step_from_codes (code sanitises them; inferred)",
)
def warmup_frames_emitted(original: Any, mark: Any) -> bool:
    """Frames of the system prompt and of the warm-up reach the client."""
    return True


@catalogued(
    "slot-leak",
    "slots:Slots.give_back",
    claims=["duplex.slots.come_back"],
    source="vllm-omni#5235 (review), #4929; delayed-streams-modeling#159",
)
def slot_leak(original: Any, slots: Any, slot: int) -> None:
    """The slot of a session that nothing was said in is not given back."""
    occupant = slots.occupants[slot]
    if occupant is None or occupant.heard:
        original(slots, slot)


@catalogued(
    "tail-lost-late-init",
    "outlet:Outlet.end_input",
    claims=["duplex.finish.drained", "duplex.finish.as_silence"],
    source="sglang-omni#674 (review)",
)
def tail_lost_late_init(original: Any, outlet: Any, slot: int) -> None:
    """The end of the input makes the stream anew, and what was owed is forgotten."""
    outlet.streams[slot] = Stream(ending=True)


@catalogued(
    "terminal-replayed",
    "engine:ReferenceEngine._end",
    claims=["duplex.finish.drained"],
    source="vllm-omni#6406",
)
def terminal_replayed(original: Any, engine: Any, slot: int, occupant: Any, error: str | None = None) -> Frame:
    """The last word is said again on the next tick."""
    if error is None and not hasattr(occupant, "told"):
        occupant.told = True
        return Frame(Phase.DRAINED, epoch=occupant.epoch)
    return original(engine, slot, occupant, error)


@catalogued(
    "segment-taken-for-replay",
    "outlet:Outlet.rotate",
    claims=["duplex.replay.exact", "duplex.finish.next_whole"],
    source="vllm-omni#6021",
)
def segment_taken_for_replay(original: Any, outlet: Any, slot: int) -> None:
    """A new occupant's frames are dropped as long as the former one's counted as far."""


@catalogued(
    "late-frame-after-cancel",
    "outlet:Outlet.is_of",
    claims=["duplex.cancel.late_frame", "duplex.cancel.recycled", "duplex.cancel.released"],
    source="vllm-omni#3745 (RFC: epoch fence), sglang-omni#1344 (review)",
)
def late_frame_after_cancel(original: Any, occupant: Any, mark: Any) -> bool:
    """The frame of a former occupant that was under way is given to the next."""
    return True


@catalogued(
    "one-error-kills-all",
    "engine:ReferenceEngine._bounded",
    claims=["duplex.slots.failure", "duplex.slots.failure_inside"],
    source="vllm-omni#7277, #6170, vllm#44933",
)
def one_error_kills_all(original: Any, engine: Any, slot: int, occupant: Any, given: Any) -> Any:
    """An error of one session goes up to the step of all."""
    return engine._turn(slot, occupant, given)
