"""What the rows of a network hold between two ticks, in tiles of a fixed number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import torch


class Rows(Protocol):
    """The state of some rows: every tensor keeps its address, so that a captured graph finds it."""

    def reset(self, row: int) -> None:
        """The row is as it was made."""
        ...

    def parts(self) -> Iterator[torch.Tensor]:
        """Everything that is a row's own, as views with the rows first."""
        ...

    def poison(self, free: list[bool]) -> None:
        """Spoil whatever may never be read: `free` says which rows are nobody's."""
        ...


State = TypeVar("State", bound=Rows)


class Tiles(Generic[State]):
    """Rows in tiles of `size`, each computed by itself.

    On a CPU the bits of a matrix product's row may depend on how many rows there are; in tiles of one size they cannot.
    """

    def __init__(self, rows: int, size: int, make: Callable[[int], State]) -> None:
        if rows < 1 or rows % size:
            raise ValueError(f"rows = {rows} is not a multiple of the {size} rows of a tile")
        self.rows, self.size = rows, size
        self.tiles = [make(size) for _ in range(rows // size)]

    def map(self, function: Callable[..., torch.Tensor], *inputs: torch.Tensor | None) -> torch.Tensor:
        """`function(tile, *inputs of its rows)` of every tile; inputs have R rows, or are None for all."""
        if len(self.tiles) == 1:
            return function(self.tiles[0], *inputs)
        split = [[None] * len(self.tiles) if rows is None else rows.split(self.size) for rows in inputs]
        return torch.cat([function(tile, *ours) for tile, *ours in zip(self.tiles, *split, strict=True)])

    def reset(self, rows: torch.Tensor) -> None:
        """Make the rows new: bool[R] on the CPU, so that nothing waits for a device and the other rows are not touched."""
        for row in rows.nonzero().flatten().tolist():
            self.tiles[row // self.size].reset(row % self.size)

    def clear(self) -> None:
        """Make all rows new at once."""
        for tile in self.tiles:
            for part in tile.parts():
                part.zero_()

    def permute(self, source: torch.Tensor) -> None:
        """Row i becomes what row source[i] was: i64[R], a permutation."""
        for pieces in zip(*(tile.parts() for tile in self.tiles), strict=True):
            moved = torch.cat(pieces)[source.to(pieces[0].device)]
            for piece, ours in zip(pieces, moved.split(self.size), strict=True):
                piece.copy_(ours)

    def poison(self, free: torch.Tensor) -> None:
        """Spoil whatever no occupied row may read: bool[R] says which rows are nobody's."""
        for tile, ours in zip(self.tiles, free.split(self.size), strict=True):
            tile.poison(ours.tolist())
