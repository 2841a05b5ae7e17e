"""The adapter of a full-duplex speech batcher: signatures, value types, shapes, units, errors.

A lockstep engine: on every tick each of its slots takes one frame of a caller's audio and gives one frame of the agent's audio and a piece
of text. A slot is recycled for a new caller while the others talk. Audio is mono float32 between -1 and 1, on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

import torch

from harness.core.lab import Lab


class Phase(str, Enum):
    """What a slot was doing on one tick."""

    PREFILL = "prefill"
    """The system prompt of its session is replayed; the caller is not heard, and nothing is said."""
    WARMUP = "warmup"
    """The caller is heard, and the first frame of the answer is not complete yet: the engine's `delay`."""
    LIVE = "live"
    """A frame of the conversation."""
    PAUSED = "paused"
    """It was left out of the tick (capability PAUSE)."""
    DRAINED = "drained"
    """Its input had ended, and the last frame was given before: once, and the slot is free (capability FINISH)."""
    FAILED = "failed"
    """Its session was ended by an error of its own, which the frame names: once, and the slot is free (capability SLOT_ERRORS)."""
    FREE = "free"
    """Nobody occupies it."""


@dataclass(frozen=True)
class Session:
    """Who is to answer in a slot: None stands for the engine's default.

    `persona`: the system prompt's text (capability PERSONA). `voice`: one of the engine's `voices` (capability VOICE). `seed`: the session
    is sampled with draws of its own, made from this seed alone (capability SEED); None: greedy.
    """

    persona: str | None = None
    voice: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Frame:
    """What one slot gave on one tick.

    `audio` f32[frame_size] and `tokens` i64[streams], the text's first, are given in phase LIVE, and in no other; `text` is the piece of
    text of this frame, None where it has none. `epoch` says which occupant of this slot since `open` it belongs to, `seq` which LIVE frame
    of that occupant, both from 0. `error` says why, in phase FAILED.
    """

    phase: Phase
    audio: torch.Tensor | None = None
    text: str | None = None
    tokens: torch.Tensor | None = None
    epoch: int = 0
    seq: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Dialogue:
    """A recording that an engine's weights are known to answer: `answer` is the whole text, "" where none may come.

    `question` is a file of 24 kHz audio.
    """

    question: Path
    persona: str | None
    answer: str


class Parity(str, Enum):
    """How far the output of one session may depend on the batch size that it runs at (capability BATCH_PARITY)."""

    BITS = "bits"
    """Not at all: audio and tokens are the same bits."""
    TEXT = "text"
    """The arithmetic may round otherwise: the text is that of the same weights in float32."""


class DuplexLab(Lab, Protocol):
    """What a friendly engine offers beyond the protocol (capability LAB). `fail_next` knows the operation `frame:<slot>`."""

    def compact(self) -> None:
        """Move the sessions, with all that they hold, to other rows of the batch: free rows come last. Slots keep their numbers."""
        ...

    def poison_free(self) -> None:
        """Spoil whatever no session may ever read: NaN in free and padded rows; a large number in the cells that a mask hides.

        Behind a mask the number is finite, since attention multiplies what it hides by 0.
        """
        ...

    def one_pass(self, slot: int) -> torch.Tensor:
        """The decisions of the slot's session, i64[ticks, streams], a row a tick since its prefill began, computed anew.

        One pass over all that the session was given and said, without caches, rings or carried context, with the window of the
        configuration. A token that was given rather than decided stands as given, and so does one that scores as well as the best, up to
        the rounding of sums in another order.
        """
        ...

    def sound(self, slot: int) -> tuple[torch.Tensor, float]:
        """The audio of the session's LIVE frames, f64[frames, frame_size], decoded anew in one pass over their tokens.

        And by how much a sample may differ from it: as far as such a pass in the engine's own arithmetic does from one in wider arithmetic,
        twice, and in any case a step of 16-bit audio.
        """
        ...

    def transcript(self, slot: int) -> torch.Tensor:
        """The same as the slot's session decided it, tick by tick."""
        ...


class DuplexEngine(Protocol):
    """A batch of slots in lockstep. Calls come from one thread."""

    slots: int
    sample_rate: int
    """Hz."""
    frame_size: int
    """Samples a tick."""
    streams: int
    """Token rows of a frame; 0 for an engine that gives none (capability TOKENS)."""
    delay: int
    """LIVE frames come this many ticks after the input that they are counted with."""
    window: int | None
    """Ticks of its own past that a slot attends to; None where the engine does not say."""
    parity: Parity | None
    """None where these weights promise nothing: random ones, whose decisions fall between scores as near as rounding."""
    voices: Sequence[str]
    """What `Session.voice` may name, the default first; empty without capability VOICE."""
    personas: Sequence[str]
    """Some texts for `Session.persona`, the default first; empty without capability PERSONA."""
    dialogues: Sequence[Dialogue]
    """What the weights are known to say; empty without capability KNOWN_ANSWERS."""
    lab: DuplexLab | None
    weight_bytes: int | None
    """Bytes of weights that a tick must read, each counted once, for the bench; None, or no such attribute, where it does not say."""

    def open(self) -> None:
        """Cold boot: every slot holds a new default session, its prefill done. Whatever was before is gone; epochs count from 0."""
        ...

    def admit(self, session: Session) -> int:
        """Give a free slot to the session, and say which; its prefill begins on the next tick. RuntimeError if none is free (ADMISSION)."""
        ...

    def release(self, slot: int) -> None:
        """The occupant leaves; the slot is free at once, and what was not given yet is dropped (ADMISSION)."""
        ...

    def recycle(self, slot: int, session: Session) -> None:
        """The next occupant takes the slot, occupied or free, also in prefill: its own prefill begins on the next tick.

        `ValueError` for a slot that there is not, or a persona or voice that the engine does not know; then nothing has changed.
        """
        ...

    def prefill_ticks(self, session: Session) -> int:
        """How many ticks the prefill of this session takes; 0 without capability PREFILL."""
        ...

    def finish(self, slot: int) -> None:
        """The caller's input has ended: the next ticks hear silence until the last frame is given, then DRAINED (FINISH).

        Every frame of input has brought one LIVE frame then. In prefill, and before any input: DRAINED on the next tick.
        """
        ...

    def cancel(self, slot: int) -> None:
        """Drop the occupant at once: no frame of it is given any more, and the slot is free (CANCEL)."""
        ...

    def step(self, pcm: torch.Tensor, live: Sequence[bool] | None = None, valid_samples: Sequence[int] | None = None) -> list[Frame]:
        """One tick: f32[slots, frame_size] in, a frame a slot out. The engine does not keep or change `pcm`.

        `live`: False leaves a slot out of this tick, as if the tick had not been (PAUSE). `valid_samples`: how many samples of each slot
        are the caller's; the rest is padding, not heard (VALID_SAMPLES). A slot in prefill, or free, ignores its row. Raises RuntimeError
        before `open` and after `close`, ValueError for a wrong shape, dtype or length; then no slot has moved. A slot whose samples are
        not finite FAILS alone (SLOT_ERRORS).
        """
        ...

    def usage(self) -> Mapping[str, int]:
        """`slots` that are occupied, and whatever else the engine holds for its sessions."""
        ...

    def close(self) -> None:
        """Free everything. May be called twice."""
        ...
