"""The networks of the embedded duplex engine at a size whose rings wrap within a few ticks, and their halves as streams of rows."""

import contextlib
from dataclasses import replace

import torch

from harness.core.bits import first_divergence
from harness.duplex.reference.config import CONFIGS, FRAME_SIZE, ROWS, TransformerConfig
from harness.duplex.reference.model import DuplexModel

TICKS = 11
SMALL = replace(
    CONFIGS["tiny"],
    codec=replace(CONFIGS["tiny"].codec, transformer=TransformerConfig(64, 2, 2, 96, 4)),
    temporal=TransformerConfig(48, 2, 2, 96, 5),
    depth=TransformerConfig(32, 2, 2, 48, 8),
    text_card=30,
)
"""Every ring holds fewer ticks than half of TICKS."""


def small(dtype=torch.float32, seed=7):
    return DuplexModel.random(SMALL, seed, dtype=dtype)


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def columns(rows, ticks, config=SMALL, seed=5):
    """Any tokens: i64[rows, ticks, 17]."""
    text = torch.randint(config.text_card, (rows, ticks, 1), generator=generator(seed))
    return torch.cat((text, torch.randint(config.audio_card, (rows, ticks, ROWS - 1), generator=generator(seed + 1))), -1)


def sound(rows, ticks, seed=5):
    """Any sound: f32[rows, ticks, FRAME_SIZE]."""
    return 0.2 * torch.randn(rows, ticks, FRAME_SIZE, generator=generator(seed))


class Stream:
    """One half of a model, `encoder`, `decoder` or `language`, tick by tick on rows of its own."""

    def __init__(self, kind, model, rows=8):
        self.kind, self.model, self.rows = kind, model, rows
        self.state = getattr(model.init_state(rows), kind)

    def inputs(self, seed=5, ticks=TICKS):
        """Any input of all rows, [rows, ticks, ...]."""
        if self.kind == "encoder":
            return sound(self.rows, ticks, seed)
        tokens = columns(self.rows, ticks, seed=seed)
        return tokens if self.kind == "language" else tokens[..., 1:9]

    @torch.inference_mode()
    def step(self, inputs, active=None):
        """One tick: [rows, ...] -> [rows, ...]."""
        active = torch.ones(self.rows, dtype=torch.bool) if active is None else active
        if self.kind == "encoder":
            return self.model.codec.encode(inputs, self.state, active)
        if self.kind == "decoder":
            return self.model.codec.decode(inputs, self.state, active)
        embedding = torch.zeros(self.rows, self.model.config.temporal.hidden)
        nowhere = torch.zeros(self.rows, ROWS, dtype=torch.bool)
        return self.model.language.step(inputs, embedding, nowhere[:, 0], inputs, nowhere, None, self.state, active)

    def run(self, inputs, active=None):
        """All ticks: [rows, ticks, ...] in and out; active bool[rows, ticks]."""
        masks = [None] * inputs.shape[1] if active is None else active.unbind(1)
        return torch.stack([self.step(tick, mask) for tick, mask in zip(inputs.unbind(1), masks, strict=True)], 1)

    def parts(self, row):
        """Views of everything that the row holds."""
        return [part[row % self.state.size] for part in self.state.tiles[row // self.state.size].parts()]

    def same(self, rows, other, theirs):
        """Raise unless `rows` hold the bits of the other stream's rows `theirs`."""
        for ours, his in zip(rows, theirs, strict=True):
            for got, expected in zip(self.parts(ours), other.parts(his), strict=True):
                agree(got, expected)


def agree(got, expected):
    """Raise unless both hold the same finite bits."""
    difference = first_divergence(got, expected)
    assert difference is None, difference


@contextlib.contextmanager
def patched(owner, name, value):
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
