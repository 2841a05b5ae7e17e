"""One whole tick of all rows over static buffers: hear, stage, think, complete a frame, speak.

No Python decision hangs on a tensor's value here, so that the same function runs eagerly and is captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch

from harness.duplex.reference.config import AGENT, AGENT_ROWS, FRAME_SIZE, ROWS, USER, USER_ROWS, ModelConfig
from harness.duplex.reference.language import Noise
from harness.duplex.reference.model import DuplexModel
from harness.duplex.reference.prompt import NO_EMBEDDING
from harness.duplex.reference.staging import Staging
from harness.duplex.reference.words import PAD


class Field(IntEnum):
    """What a row is told on a tick: the columns of `Buffers.control`. The first four are flags."""

    ACTIVE = 0
    """It takes part; what an inactive row holds stays as it is."""
    HEARS = 1
    """Its `pcm` is encoded, with the context of what it heard before."""
    DELIVERS = 2
    """The frame that is complete now is decoded, with the context of what it said before."""
    PREFILL = 3
    """Its frame is one of the system prompt: every token is given."""
    POSITION = 4
    """Ticks that it has taken part in, at most MAX_DELAY."""
    CURSOR = 5
    """Its place in the delay ring."""
    EMBEDDING = 6
    """Which voice embedding it is fed instead of the column before; NO_EMBEDDING: none."""
    TEXT = 7
    """The prompt's text token of its frame."""


IDLE = (0, 0, 0, 0, 0, 0, NO_EMBEDDING, PAD)
"""The control of a row that takes no part."""


class Told(NamedTuple):
    """The columns of `Buffers.control`, each of the rows: flags bool[R], the others i64[R]."""

    active: torch.Tensor
    hears: torch.Tensor
    delivers: torch.Tensor
    prefill: torch.Tensor
    position: torch.Tensor
    cursor: torch.Tensor
    embedding: torch.Tensor
    text: torch.Tensor


@dataclass(frozen=True)
class Buffers:
    """A tick's input, in memory that never moves.

    `pcm` f32[R, FRAME_SIZE] and `control` i64[R, fields] share `packed`, so that one copy moves them. Gumbel noise: `text_noise`
    f32[R, text_card] and `audio_noise` f32[R, codebooks, card]. `flags` bool[4, R] are those of `told`, which shares the rest of `control`.
    """

    packed: torch.Tensor
    pcm: torch.Tensor
    control: torch.Tensor
    flags: torch.Tensor
    told: Told
    text_noise: torch.Tensor
    audio_noise: torch.Tensor

    @classmethod
    def make(cls, rows: int, config: ModelConfig, device: torch.device, pinned: bool = False) -> Buffers:
        """Silence, nobody taking part, no noise."""

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(*shape, device=device, pin_memory=pinned)

        samples = rows * FRAME_SIZE
        packed = zeros(samples + 2 * rows * len(Field))
        control = packed[samples:].view(torch.int64).view(rows, len(Field))
        control.copy_(torch.tensor(IDLE))
        flags = torch.zeros(Field.POSITION, rows, dtype=torch.bool, device=device)
        told = Told(*flags, *control[:, Field.POSITION :].t())
        noise = zeros(rows, config.text_card), zeros(rows, config.depth.context, config.audio_card)
        return cls(packed, packed[:samples].view(rows, FRAME_SIZE), control, flags, told, *noise)

    def read(self) -> Told:
        """The control as it is now; until it is read again."""
        torch.ne(self.control[:, : Field.POSITION].t(), 0, out=self.flags)
        return self.told


@dataclass(frozen=True)
class Outcome:
    """`tokens` i64[R, 2, ROWS]: the column of this tick, and the frame that it completes; `audio` f32[R, FRAME_SIZE] of that frame."""

    tokens: torch.Tensor
    audio: torch.Tensor


class Tick:
    """The tick of one model, for rows with their states and delay rings."""

    def __init__(self, model: DuplexModel, rows: int) -> None:
        self.model, self.config, self.rows = model, model.config, rows
        self.state = model.init_state(rows)
        self.staging = Staging(rows, model.language.initial)
        self.voices = tuple(model.voices.values())
        self._embeddings = torch.cat([voice.embeddings for voice in self.voices])
        self._silence = model.silence.expand(rows, AGENT_ROWS)
        self._users = torch.zeros(ROWS, dtype=torch.bool, device=model.silence.device)
        self._users[USER] = True
        self._unheard = model.sine.expand(rows, USER_ROWS)
        self._unsaid = torch.zeros(rows, FRAME_SIZE, device=model.silence.device)

    def __call__(self, given: Buffers, *, sampled: bool = True) -> Outcome:
        """A tick of all rows. Not `sampled`: the noise is zeros, and is not even added."""
        told = given.read()
        waiting, provided = self._stage(told, self.model.codec.encode(given.pcm, self.state.encoder, told.hears))
        noise = Noise(given.text_noise, given.audio_noise) if sampled else None
        column = self.model.language.step(*self._fed(told), waiting, provided, noise, self.state.language, told.active)
        frame = self._settle(told, column)
        audio = self.model.codec.decode(self.codes(frame), self.state.decoder, told.delivers)
        return Outcome(torch.stack((column, frame), 1), audio.float())

    def prompt(self, given: Buffers) -> Outcome:
        """The same where all who take part are in prefill: nothing is heard, decided or delivered, and the audio is silence."""
        told = given.read()
        column, _ = self._stage(told, self._unheard)
        self.model.language.follow(*self._fed(told), self.state.language, told.active)
        return Outcome(torch.stack((column, self._settle(told, column)), 1), self._unsaid)

    def _stage(self, told: Told, heard: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The prompt's tokens of a row in prefill, the caller's codes of any other, to where they belong; what now waits, and where."""
        prompted = told.prefill.unsqueeze(1)
        users = torch.where(prompted, self.model.sine, heard)
        tokens = torch.cat((told.text.unsqueeze(1), self._silence, users), 1)
        self.staging.stage(told.cursor, told.active, tokens, prompted | self._users)
        return self.staging.waiting(told.cursor, told.position)

    def _fed(self, told: Told) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The column before, and the voice's embedding where there is one in its place: as `LanguageModel.step` takes them."""
        before = self.staging.before(told.cursor, told.position == 0)
        return before, self._embeddings.index_select(0, told.embedding.clamp(min=0)), told.embedding != NO_EMBEDDING

    def _settle(self, told: Told, column: torch.Tensor) -> torch.Tensor:
        """Keep the column; the frame that it completes."""
        self.staging.settle(told.cursor, told.active, column)
        return self.staging.frame(told.cursor)

    def codes(self, frame: torch.Tensor) -> torch.Tensor:
        """The agent's codes i64[R, AGENT_ROWS] of each row's frame; one not delivered may hold initial tokens, which have no code."""
        return frame[:, AGENT].clamp(max=self.config.audio_card - 1)

    def reset(self, rows: torch.Tensor) -> None:
        """Nothing is left of what was in these rows, bool[R] on the CPU."""
        self.state.reset(rows)
        self.staging.reset(rows)

    def clear(self) -> None:
        """Nothing is left in any row: whole buffers at once, as a boot does it."""
        self.state.clear()
        self.staging.reset(torch.ones(self.rows, dtype=torch.bool))

    def restore(self, row: int, voice: int, base: int) -> None:
        """The voice's embeddings are over: its delay ring takes the place of what they left in the row's."""
        self.staging.restore(row, base, self.voices[voice].ring)

    def move(self, order: torch.Tensor) -> None:
        """Row i becomes what row `order[i]` was, i64[R], a permutation."""
        self.state.permute(order)
        self.staging.move(order)
