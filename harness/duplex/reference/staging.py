"""The delay ring: tokens on their way to the columns that they belong to, and whose frames are under way.

Row k of column c holds the token of frame c - DELAYS[k]. A slot keeps the last RING columns in a ring of its own; its cursor, the place of
the column that a tick makes, goes on from occupant to occupant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.duplex.reference.config import DELAYS, MAX_DELAY, ROWS
from harness.duplex.reference.model import STAGED_COLUMNS as RING


class Staging:
    """The rings of all rows of a batch: `tokens` i64[R, ROWS, RING] and `provided` bool of that shape, given rather than decided.

    `cursor` is i64[R] everywhere, `active` bool[R]; a row that is not active keeps what it has.
    """

    def __init__(self, rows: int, initial: torch.Tensor) -> None:
        """`initial`: the initial token of each row of a column, i64[ROWS]; its device is that of the rings."""
        device = initial.device
        self.initial = initial
        self.tokens = initial[None, :, None].repeat(rows, 1, RING)
        self.provided = torch.zeros(rows, ROWS, RING, dtype=torch.bool, device=device)
        delays = torch.tensor(DELAYS, device=device)
        place, column = torch.arange(RING, device=device), torch.arange(RING, device=device)[:, None]
        # Each is looked up by the cursor: where a frame's tokens go, where this tick's column is, where its complete frame's tokens are.
        self._targets = (column[:, None] + delays[:, None]) % RING == place
        self._here = (column == place)[:, None, :]
        self._frame = (column + delays - MAX_DELAY) % RING
        self._too_early = torch.arange(MAX_DELAY + 1, device=device)[:, None] < delays

    def stage(self, cursor: torch.Tensor, active: torch.Tensor, tokens: torch.Tensor, given: torch.Tensor) -> None:
        """Send the frame's `tokens` i64[R, ROWS] where `given` bool[R, ROWS] to the columns that they belong to."""
        target = self._targets.index_select(0, cursor) & (given & active.unsqueeze(1)).unsqueeze(2)
        torch.where(target, tokens.unsqueeze(2), self.tokens, out=self.tokens)
        self.provided |= target

    def before(self, cursor: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """The column before this tick's, i64[R, ROWS]: initial tokens in rows that are at their `first` tick, bool[R]."""
        return torch.where(first.unsqueeze(1), self.initial, self._column(self.tokens, (cursor - 1) % RING))

    def waiting(self, cursor: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What is given of this tick's column, i64 and bool[R, ROWS]. `position` i64[R], at most MAX_DELAY: how many came before it.

        In the first columns the delayed rows have no frame that they belong to: the initial token is given there.
        """
        early = self._too_early.index_select(0, position)
        tokens = torch.where(early, self.initial, self._column(self.tokens, cursor))
        return tokens, self._column(self.provided, cursor) | early

    def settle(self, cursor: torch.Tensor, active: torch.Tensor, column: torch.Tensor) -> None:
        """Keep the finished column, i64[R, ROWS], and make its place ready for what will wait there next."""
        here = self._here.index_select(0, cursor) & active.view(-1, 1, 1)
        torch.where(here, column.unsqueeze(2), self.tokens, out=self.tokens)
        self.provided &= ~here

    def frame(self, cursor: torch.Tensor) -> torch.Tensor:
        """The frame that this tick's column completes, i64[R, ROWS]: that of MAX_DELAY ticks ago."""
        return self.tokens.gather(2, self._frame.index_select(0, cursor).unsqueeze(2)).squeeze(2)

    def reset(self, rows: torch.Tensor) -> None:
        """Nothing waits in these rows, bool[R]."""
        rows = rows.to(self.tokens.device)
        torch.where(rows[:, None, None], self.initial[:, None], self.tokens, out=self.tokens)
        self.provided &= ~rows[:, None, None]

    def restore(self, row: int, base: int, snapshot: torch.Tensor) -> None:
        """Put a voice's ring i64[ROWS, RING], taken where the first column's place was 0, into a row where it was `base`."""
        self.tokens[row] = snapshot.roll(base, dims=-1)

    def move(self, order: torch.Tensor) -> None:
        """Row i becomes what row `order[i]` was, i64[R]."""
        for part in (self.tokens, self.provided):
            part.copy_(part[order.to(part.device)])

    @staticmethod
    def _column(ring: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return ring.gather(2, place.view(-1, 1, 1).expand(-1, ROWS, 1)).squeeze(2)


@dataclass(frozen=True)
class Mark:
    """Of a frame on its way through the ring: whose it is, whether its tick was one of the conversation, and the how-manieth of those."""

    epoch: int
    live: bool
    seq: int


NOBODY = Mark(-1, False, 0)


class Marks:
    """The marks of the frames in the rings, slot by slot; they lie where the tokens of row 0 do, and outlive their occupant."""

    def __init__(self, slots: int) -> None:
        self._marks = [[NOBODY] * RING for _ in range(slots)]

    def put(self, slot: int, cursor: int, mark: Mark) -> None:
        """The frame that was staged at this tick."""
        self._marks[slot][cursor] = mark

    def complete(self, slot: int, cursor: int) -> Mark:
        """Of the frame that this tick's column completes."""
        return self._marks[slot][(cursor - MAX_DELAY) % RING]
