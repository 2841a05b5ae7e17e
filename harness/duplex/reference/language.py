"""The language model over columns of tokens: a temporal transformer over ticks, a depth transformer within each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from harness.duplex.reference.config import ROWS, ModelConfig
from harness.duplex.reference.depth import DepthTransformer
from harness.duplex.reference.layers import Transformer, weight
from harness.duplex.reference.ring import RingKV
from harness.duplex.reference.tiles import Tiles


class Noise(NamedTuple):
    """Added to float32 logits before the largest is taken: Gumbel draws sample, zeros are greedy."""

    text: torch.Tensor
    """f32[R, text_card]."""
    audio: torch.Tensor
    """f32[R, depth.context, card]."""


class LanguageModel(nn.Module):
    """Column p - 1 (or an embedding in its place) in, column p out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = weight(config.text_card + 1 + (ROWS - 1) * (config.audio_card + 1), config.temporal.hidden)
        offsets = [0, *(config.text_card + 1 + row * (config.audio_card + 1) for row in range(ROWS - 1))]
        self.register_buffer("offsets", torch.tensor(offsets), persistent=False)
        initial = [config.text_card, *[config.audio_card] * (ROWS - 1)]
        self.register_buffer("initial", torch.tensor(initial), persistent=False)
        self.temporal = Transformer(config.temporal)
        self.text_head = weight(config.text_card, config.temporal.hidden)
        self.depth = DepthTransformer(config)

    def step(
        self,
        column: torch.Tensor,
        override: torch.Tensor,
        override_rows: torch.Tensor,
        given: torch.Tensor,
        is_given: torch.Tensor,
        noise: Noise | None,
        state: Tiles[RingKV],
        active: torch.Tensor,
    ) -> torch.Tensor:
        """One tick: column p - 1, i64[R, 17] -> column p, i64[R, 17].

        `override` f[R, hidden] stands for the summed embeddings where `override_rows` bool[R]. Where `is_given` bool[R, 17] the token of `given`
        i64[R, 17] is taken, elsewhere decided; rows behind depth.context are always taken. `active` bool[R]: other rows change nothing, and
        their result is void.
        """
        text, audio = (None, None) if noise is None else noise
        return state.map(self._step, column, override, override_rows, given, is_given, text, audio, active)

    def logits_sequence(
        self, columns: torch.Tensor, override: torch.Tensor, override_rows: torch.Tensor, inputs: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All ticks at once, teacher-forced: what columns i64[B, T, 17] were, or should be, decided from.

        `override` f[B, T, hidden] stands for the summed embeddings of a tick where `override_rows` bool[B, T]. `inputs` i64[B, T, 17]: the column that
        each tick was fed; None: the column before, and the initial tokens at the first. Text logits f[B, T, text_card], audio logits f[B, T, depth.context, card].
        """
        if inputs is None:
            inputs = torch.cat((self.initial.expand(columns.shape[0], 1, -1), columns[:, :-1]), 1)
        hidden = self.temporal.sequence(self._embed(inputs, override, override_rows))
        audio = self.depth.sequence(hidden.flatten(0, 1), columns[..., : self.depth.steps].flatten(0, 1))
        return F.linear(hidden, self.text_head), audio.unflatten(0, columns.shape[:2])

    def _embed(self, columns: torch.Tensor, override: torch.Tensor, override_rows: torch.Tensor) -> torch.Tensor:
        summed = F.embedding(columns + self.offsets, self.embedding).sum(-2)
        return torch.where(override_rows.unsqueeze(-1), override, summed)

    def _step(
        self,
        ring: RingKV,
        column: torch.Tensor,
        override: torch.Tensor,
        override_rows: torch.Tensor,
        given: torch.Tensor,
        is_given: torch.Tensor,
        text_noise: torch.Tensor | None,
        audio_noise: torch.Tensor | None,
        active: torch.Tensor,
    ) -> torch.Tensor:
        hidden = self.temporal.step(self._embed(column, override, override_rows), ring, active)
        token = decide(F.linear(hidden, self.text_head), text_noise, given[:, 0], is_given[:, 0])
        decided = [token]
        parts, caches = self.depth.begin(hidden)
        for step in range(self.depth.steps):
            logits = self.depth.step(step, parts, caches, token)
            noise = None if audio_noise is None else audio_noise[:, step]
            token = decide(logits, noise, given[:, step + 1], is_given[:, step + 1])
            decided.append(token)
        return torch.cat((torch.stack(decided, 1), given[:, len(decided) :]), 1)


def decide(logits: torch.Tensor, noise: torch.Tensor | None, given: torch.Tensor, is_given: torch.Tensor) -> torch.Tensor:
    """The largest of f[R, n], the first of equals, unless one is given: i64[R]."""
    logits = logits.float() if noise is None else logits.float() + noise
    return torch.where(is_given, given, logits.argmax(-1))
