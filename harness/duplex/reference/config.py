"""The sizes of the embedded duplex engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

SAMPLE_RATE = 24_000
FRAME_SIZE = 1920
"""Samples a tick: 80 ms."""
AGENT_ROWS = 8
USER_ROWS = 8
ROWS = 1 + AGENT_ROWS + USER_ROWS
"""Token rows of a column: text, the agent's codebooks, the caller's codebooks."""
AGENT = slice(1, 1 + AGENT_ROWS)
USER = slice(1 + AGENT_ROWS, ROWS)
DELAYS = (0, *(0, 1, 1, 1, 1, 1, 1, 1), *(0, 1, 1, 1, 1, 1, 1, 1))
"""Of each row, in ticks: row k of column c belongs to frame c - DELAYS[k]."""
MAX_DELAY = max(DELAYS)
SWEEP = (2, 4, 8, 16, 32)
"""Batch sizes that a card's graphs are captured for."""
CPU_TILE = 8
"""On a CPU every product sees this many rows, so that the bits of a row do not depend on the batch size."""


@dataclass(frozen=True)
class TransformerConfig:
    """`context`: ticks that a position attends to, its own among them, which is the capacity of its ring."""

    hidden: int
    heads: int
    layers: int
    feedforward: int
    context: int

    def __post_init__(self) -> None:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden = {self.hidden} does not split into {self.heads} heads of even size")


@dataclass(frozen=True)
class CodecConfig:
    """`strides` multiply to FRAME_SIZE; `channels` has one more entry, from the waveform's side; the last is the transformers' width."""

    channels: tuple[int, ...]
    strides: tuple[int, ...]
    transformer: TransformerConfig
    card: int
    code_dim: int

    def __post_init__(self) -> None:
        if math.prod(self.strides) != FRAME_SIZE or len(self.channels) != len(self.strides):
            raise ValueError(f"strides {self.strides} do not multiply to {FRAME_SIZE}, or channels {self.channels} do not match them")


@dataclass(frozen=True)
class ModelConfig:
    """One size of the whole network. `depth.context` is the number of codebooks that the depth transformer decides, from row 1 on."""

    codec: CodecConfig
    temporal: TransformerConfig
    depth: TransformerConfig
    text_card: int
    voice_ticks: int
    silence_ticks: int

    @property
    def audio_card(self) -> int:
        """Entries of a codebook; the initial token comes behind them."""
        return self.codec.card


CONFIGS = {
    "tiny": ModelConfig(
        codec=CodecConfig((32, 48, 64), (16, 12, 10), TransformerConfig(64, 2, 1, 128, 16), card=64, code_dim=24),
        temporal=TransformerConfig(128, 4, 2, 256, 96),
        depth=TransformerConfig(64, 2, 1, 128, 8),
        text_card=160,
        voice_ticks=4,
        silence_ticks=2,
    ),
    "7b": ModelConfig(
        codec=CodecConfig((64, 128, 256, 512, 512), (4, 5, 6, 8, 2), TransformerConfig(512, 8, 8, 2048, 250), card=2048, code_dim=256),
        temporal=TransformerConfig(4096, 32, 32, 11264, 3000),
        depth=TransformerConfig(1024, 16, 6, 2816, 16),
        text_card=32_000,
        voice_ticks=4,
        silence_ticks=6,
    ),
}
