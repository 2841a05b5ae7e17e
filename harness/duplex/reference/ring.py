"""Keys and values of the last `context` ticks of every row, each row at a position of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from harness.duplex.reference.config import TransformerConfig
from harness.duplex.reference.room import LayerRoom

POISON = 97.0
"""What `RingKV.poison` puts behind the mask of an occupied row: finite, since attention multiplies it by 0, and 0 * NaN is NaN."""


class Visit(NamedTuple):
    """What all layers of a transformer share on one tick."""

    positions: torch.Tensor
    """i64[R]: of the tokens that come now."""
    cells: torch.Tensor
    """i64[R]: where their keys and values go."""
    mask: torch.Tensor
    """dtype[R, 1, 1, context]: 0 where a cell is seen, -inf where not."""


class RingKV:
    """Rings of one transformer: per layer keys and values of [R * context + 1, heads, head size]; the last cell is the trash.

    A row at position p holds p - context + 1 .. p once p is written, position q in its cell q % context. An inactive row writes to the
    trash, which nobody sees, and keeps its position. Cells that were not written since the row's reset are 0: attention gives
    them the weight 0, and 0 * NaN would be NaN. `positions` says where a row is, `written` how many ticks it may look back.
    """

    def __init__(self, config: TransformerConfig, rows: int, device: torch.device | str, dtype: torch.dtype) -> None:
        self.rows, self.context = rows, config.context
        self.room = LayerRoom.make(config, rows, device, dtype)
        shape = (rows * config.context + 1, config.heads, config.hidden // config.heads)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(config.layers)]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(config.layers)]
        self._counts = torch.zeros(2, rows, device=device, dtype=torch.int64)
        self.positions, self.written = self._counts
        self._shown = [tuple(self._by_row(cells).transpose(1, 2) for cells in both) for both in zip(self.keys, self.values, strict=True)]
        self._cells = torch.arange(config.context, device=device)
        self._starts = torch.arange(rows, device=device) * config.context
        self._trash = torch.tensor(rows * config.context, device=device)
        self._seen = torch.zeros((), device=device, dtype=dtype)
        self._hidden = torch.full((), -torch.inf, device=device, dtype=dtype)
        self._mask = torch.zeros(rows, self.context, device=device, dtype=dtype)
        self._visit = Visit(self.positions, torch.zeros_like(self.positions), self._mask[:, None, None])

    def visit(self, active: torch.Tensor) -> Visit:
        """The tick's places, until the next one's: active bool[R]."""
        cells = torch.remainder(self.positions, self.context, out=self._visit.cells).add_(self._starts)
        torch.where(active, cells, self._trash, out=cells)
        torch.where(visible(self.written, self._cells), self._seen, self._hidden, out=self._mask)
        return self._visit

    def write(self, layer: int, cells: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Put f[R, heads, head size] into `cells`; what the rows hold now, twice f[R, heads, context, head size]."""
        self.keys[layer].index_copy_(0, cells, keys)
        self.values[layer].index_copy_(0, cells, values)
        return self._shown[layer]

    def advance(self, active: torch.Tensor) -> None:
        """The tick is over for the active rows."""
        self._counts.add_(active)

    def reset(self, row: int) -> None:
        """A new occupant: position 0, and nothing of the former one, NaN least of all."""
        for part in self.parts():
            part[row].zero_()

    def parts(self) -> Iterator[torch.Tensor]:
        """Everything that is a row's own, as views with the rows first."""
        yield self.positions
        yield self.written
        for cells in (*self.keys, *self.values):
            yield self._by_row(cells)

    def poison(self, free: list[bool]) -> None:
        """NaN in the free rows, the trash and the room; POISON in the cells that an occupied row does not see. Waits for the device."""
        self.room.poison()
        for cells in (*self.keys, *self.values):
            cells[-1].fill_(torch.nan)
            for row, (position, ours) in enumerate(zip(self.written.tolist(), self._by_row(cells), strict=True)):
                (ours if free[row] else ours[position:]).fill_(torch.nan if free[row] else POISON)

    def _by_row(self, cells: torch.Tensor) -> torch.Tensor:
        return cells[:-1].view(self.rows, self.context, *cells.shape[1:])


def visible(written: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """bool[R, context]: which `cells` i64[context] of its ring a row sees, that has `written` i64[R] ticks and now its own cell.

    From tick context - 1 on every cell holds one of the last `context` ticks; before that, the cells up to its own do.
    """
    return cells <= written.unsqueeze(1)
