"""Where a tile's tick is computed: buffers that are written before they are read, with the views that its steps have of them.

Made once for all ticks: to allocate and to slice takes longer in a tiny network than to compute. Nothing in here outlives a tick.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from harness.duplex.reference.config import TransformerConfig


class FinishRoom(NamedTuple):
    """Of what a layer does behind its attention."""

    state: torch.Tensor
    """f[R, hidden]: what the layers hand on."""
    wide: torch.Tensor
    """f[R, 2 * feedforward]: what the feed-forward widens it to, and the halves of that."""
    gate: torch.Tensor
    value: torch.Tensor

    @classmethod
    def make(cls, config: TransformerConfig, rows: int, device: torch.device | str, dtype: torch.dtype) -> FinishRoom:
        """For ticks of so many rows."""
        wide = torch.zeros(rows, 2 * config.feedforward, device=device, dtype=dtype)
        return cls(torch.zeros(rows, config.hidden, device=device, dtype=dtype), wide, *wide.chunk(2, -1))

    def poison(self) -> None:
        """Spoil what may not be read before it is written."""
        self.state.fill_(torch.nan)
        self.wide.fill_(torch.nan)


class LayerRoom(NamedTuple):
    """Of a transformer's layers, one after the other; `size`: of a head."""

    qkv: torch.Tensor
    """f[R, 3 * hidden]: what a layer's projection writes."""
    halves: torch.Tensor
    """f[R, 2 * heads, 2, size / 2]: its queries and keys, the heads in halves."""
    turned: torch.Tensor
    """Of that shape: the same, rotated."""
    query: torch.Tensor
    """f[R, heads, 1, size], and the keys and values f[R, heads, size], as a ring takes them."""
    key: torch.Tensor
    value: torch.Tensor
    finish: FinishRoom

    @classmethod
    def make(cls, config: TransformerConfig, rows: int, device: torch.device | str, dtype: torch.dtype) -> LayerRoom:
        """For ticks of so many rows."""
        qkv = torch.zeros(rows, 3 * config.hidden, device=device, dtype=dtype)
        halves = qkv[:, : 2 * config.hidden].view(rows, 2 * config.heads, 2, -1)
        turned = torch.zeros_like(halves, memory_format=torch.contiguous_format)
        query, key = turned.flatten(-2).chunk(2, 1)
        value = qkv[:, 2 * config.hidden :].view(key.shape)
        return cls(qkv, halves, turned, query.unsqueeze(2), key, value, FinishRoom.make(config, rows, device, dtype))

    def poison(self) -> None:
        """Spoil what may not be read before it is written."""
        self.qkv.fill_(torch.nan)
        self.turned.fill_(torch.nan)
        self.finish.poison()


class ConvRoom:
    """Of one convolution over `blocks` blocks a tick of each row, `outputs` wide.

    A block's product is what it gives now and, behind it, what it leaves to the next block; so what the one before left lies in front
    of what a block gives now, but for the first of a row.
    """

    def __init__(self, rows: int, blocks: int, outputs: int, device: torch.device | str, dtype: torch.dtype) -> None:
        self._buffer = torch.zeros((2 * rows * blocks + 1) * outputs, device=device, dtype=dtype)
        self.product = self._buffer[outputs:].view(rows * blocks, 2 * outputs)
        """f[R * blocks, 2 * outputs]: what the convolution's product is written to."""
        self.now = self.product[:, :outputs]
        self.before = self._buffer[:-outputs].view(rows * blocks, 2 * outputs)[:, :outputs]
        """f[R * blocks, outputs]: what the block before left."""
        by_row = self.product.view(rows, blocks, 2, outputs)
        self.first, self.carry = by_row[:, 0, 0], by_row[:, -1, 1]
        """f[R, outputs]: what the first block gives, and what the last one leaves."""
        self.felt = torch.zeros(rows * blocks, outputs, device=device, dtype=dtype)
        """f[R * blocks, outputs]: the convolution's output."""
        self.felt_first = self.felt.view(rows, blocks, outputs)[:, 0]
        self.samples = self.felt.view(rows, blocks * outputs)
        """The same as f[R, samples]."""
        self.blocks = blocks

    def poison(self) -> None:
        """Spoil what may not be read before it is written."""
        self._buffer.fill_(torch.nan)
        self.felt.fill_(torch.nan)
