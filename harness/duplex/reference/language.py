"""The language model over columns of tokens: a temporal transformer over ticks, a depth transformer within each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.nn import functional as F

from harness.duplex.reference.config import ROWS, ModelConfig
from harness.duplex.reference.depth import DepthScratch, DepthTransformer
from harness.duplex.reference.layers import Bare, Transformer, weight
from harness.duplex.reference.ring import RingKV
from harness.duplex.reference.tiles import Tiles


class Noise(NamedTuple):
    """Added to float32 logits before the largest is taken: Gumbel draws sample, zeros are greedy."""

    text: torch.Tensor
    """f32[R, text_card]."""
    audio: torch.Tensor
    """f32[R, depth.context, card]."""


class LanguageRows:
    """What the rows of a language model hold: the temporal ring. The depth transformer's scratch lives for one tick."""

    def __init__(self, config: ModelConfig, rows: int, device: torch.device | str, dtype: torch.dtype) -> None:
        self.ring = RingKV(config.temporal, rows, device, dtype)
        self.scratch = DepthScratch(config.depth, rows, device, dtype)
        self.column = torch.zeros(ROWS, rows, device=device, dtype=torch.int64)
        self.said = self.column.unbind()

    def reset(self, row: int) -> None:
        """As in `tiles.Rows`."""
        self.ring.reset(row)

    def parts(self) -> Iterator[torch.Tensor]:
        """As in `tiles.Rows`."""
        return self.ring.parts()

    def poison(self, free: list[bool]) -> None:
        """As in `tiles.Rows`."""
        self.ring.poison(free)
        self.scratch.poison()


class LanguageModel(Bare):
    """Column p - 1 (or an embedding in its place) in, column p out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        cards = (config.text_card + 1, *[config.audio_card + 1] * (ROWS - 1))
        self.embedding = weight(sum(cards), config.temporal.hidden)
        self.register_buffer("offsets", torch.tensor([sum(cards[:row]) for row in range(ROWS)]), persistent=False)
        self.register_buffer("initial", torch.tensor(cards) - 1, persistent=False)
        self.temporal = Transformer(config.temporal)
        self.text_head = weight(config.temporal.hidden, config.text_card)
        self.depth = DepthTransformer(config)

    def step(
        self,
        column: torch.Tensor,
        override: torch.Tensor,
        override_rows: torch.Tensor,
        given: torch.Tensor,
        is_given: torch.Tensor,
        noise: Noise | None,
        state: Tiles[LanguageRows],
        active: torch.Tensor,
    ) -> torch.Tensor:
        """One tick: column p - 1, i64[R, 17] -> column p, i64[R, 17].

        `override` f[R, hidden] stands for the summed embeddings where `override_rows` bool[R]. Where `is_given` bool[R, 17] the
        token of `given` i64[R, 17] is taken, elsewhere decided; rows behind depth.context are always taken. `active` bool[R]:
        other rows change nothing, and their result is void.
        """
        text, audio = (None, None) if noise is None else noise
        return state.map(self._step, column, override, override_rows, given, is_given, text, audio, active)

    def follow(
        self,
        column: torch.Tensor,
        override: torch.Tensor,
        override_rows: torch.Tensor,
        state: Tiles[LanguageRows],
        active: torch.Tensor,
    ) -> None:
        """A tick of `step` in which every token is given: the state moves, and nothing is decided."""
        state.map(self._hidden, column, override, override_rows, active)

    def logits_sequence(
        self, columns: torch.Tensor, override: torch.Tensor, override_rows: torch.Tensor, inputs: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All ticks at once, teacher-forced: what the columns i64[B, T, 17] were, or should be, decided from.

        `override` f[B, T, hidden] stands for the summed embeddings of a tick where `override_rows` bool[B, T]. `inputs`
        i64[B, T, 17]: the column that each tick was fed; None: the column before, and the initial tokens at the first.
        Text logits f[B, T, text_card], audio logits f[B, T, depth.context, card].
        """
        if inputs is None:
            inputs = torch.cat((self.initial.expand(columns.shape[0], 1, -1), columns[:, :-1]), 1)
        hidden = self.temporal.sequence(self._embed(inputs, override, override_rows)).flatten(0, 1)
        text = torch.mm(hidden, self.text_head)
        audio = self.depth.sequence(hidden, columns[..., : len(self.depth.steps)].flatten(0, 1))
        return text.unflatten(0, columns.shape[:2]), audio.unflatten(0, columns.shape[:2])

    def _embed(self, columns: torch.Tensor, override: torch.Tensor, override_rows: torch.Tensor) -> torch.Tensor:
        summed = F.embedding(columns + self.offsets, self.embedding).sum(-2)
        return torch.where(override_rows.unsqueeze(-1), override, summed)

    def _hidden(
        self, rows: LanguageRows, column: torch.Tensor, override: torch.Tensor, override_rows: torch.Tensor, active: torch.Tensor
    ) -> torch.Tensor:
        """The temporal state, f[R, hidden]."""
        return self.temporal.step(self._embed(column, override, override_rows), rows.ring, active)

    def _step(
        self,
        rows: LanguageRows,
        column: torch.Tensor,
        override: torch.Tensor,
        override_rows: torch.Tensor,
        given: torch.Tensor,
        is_given: torch.Tensor,
        text_noise: torch.Tensor | None,
        audio_noise: torch.Tensor | None,
        active: torch.Tensor,
    ) -> torch.Tensor:
        hidden = self._hidden(rows, column, override, override_rows, active)
        rows.column.copy_(given.t())
        said, is_taken = rows.said, is_given.unbind(1)
        steps = self.depth.steps
        noises = [None] * len(steps) if audio_noise is None else audio_noise.unbind(1)
        decide(torch.mm(hidden, self.text_head), text_noise, said[0], is_taken[0], said[0])
        parts = self.depth.enter_step(hidden, rows.scratch)
        for row, (step, part, places, noise) in enumerate(zip(steps, parts, rows.scratch.places, noises, strict=True), 1):
            decide(step(part, said[row - 1], places), noise, said[row], is_taken[row], said[row])
        return rows.column.t().contiguous()


def decide(
    logits: torch.Tensor, noise: torch.Tensor | None, given: torch.Tensor, is_given: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The largest of f[R, n], the first of equals, unless one is given: i64[R]."""
    logits = logits.float() if noise is None else logits.float() + noise
    return torch.where(is_given, given, logits.argmax(-1), out=out)
