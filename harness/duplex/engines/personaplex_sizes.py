"""The sizes of a synthetic PersonaPlex checkpoint. `7b` has those of nvidia/personaplex-7b-v1, but for a shorter voice."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_CARD = 32_000
AUDIO_CARD = 2048
"""Entries of a codebook. Both are constants of the engine, so every size has them."""
ROWS = 17
"""Token rows: text, eight codebooks of the agent, eight of the caller."""
CODEBOOKS = 8
RING = 4
"""Columns of the engine's staging ring, which a voice brings a snapshot of."""
STRIDES = (8, 6, 5, 4)
"""Of the codec's decoder; its encoder has them in reverse. With the resampling by two behind them: 1920 samples a frame."""
CODEC_LAYERS = 8
"""Of each of the codec's transformers; the engine counts their tensors."""


@dataclass(frozen=True)
class Codec:
    """`filters` doubles at every stride, `context` counts positions, two a frame."""

    filters: int
    hidden: int
    heads: int
    feedforward: int
    context: int
    quantizers: int
    code_dim: int


@dataclass(frozen=True)
class Size:
    """`hidden`, `layers`, `heads`, `feedforward` and `context` (ticks) of the temporal transformer; `depth_...` of the other."""

    hidden: int
    layers: int
    heads: int
    feedforward: int
    context: int
    depth_hidden: int
    depth_layers: int
    depth_heads: int
    depth_feedforward: int
    codec: Codec
    voice_ticks: int = 4

    def __post_init__(self) -> None:
        splits = ((self.hidden, self.heads), (self.depth_hidden, self.depth_heads), (self.codec.hidden, self.codec.heads))
        if any(width % (2 * heads) for width, heads in splits):
            raise ValueError(f"widths and heads {splits}: a width splits into heads of even size")


SIZES = {
    "tiny": Size(96, 2, 2, 192, 96, 128, 1, 4, 256, Codec(4, 32, 2, 64, 32, 8, 16)),
    "7b": Size(4096, 32, 32, 11_264, 3000, 1024, 6, 16, 2816, Codec(64, 512, 8, 2048, 250, 32, 256)),
}
