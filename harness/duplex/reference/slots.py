"""Who sits where: slots are the callers' handles, rows are places in the batch's tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from harness.duplex.protocol import Session
from harness.duplex.reference.draws import Draws
from harness.duplex.reference.prompt import Prompt
from harness.duplex.reference.staging import RING


@dataclass(eq=False)
class Occupant:
    """One session in one slot.

    `base`: the ring's place of its first column. `position`: the ticks that it has taken part in. `heard`: those of them with the caller's
    audio. `columns` and `audio` record the outcome of each tick, i64[ROWS], and what was heard, f32[frame_size], for the lab.
    """

    session: Session
    epoch: int
    prompt: Prompt
    base: int
    position: int = 0
    heard: int = 0
    columns: list[torch.Tensor] = field(default_factory=list)
    audio: list[np.ndarray] = field(default_factory=list)

    @property
    def cursor(self) -> int:
        """The ring's place of the column that its next tick makes."""
        return (self.base + self.position) % RING

    @property
    def in_prefill(self) -> bool:
        """Whether its next tick is one of the system prompt."""
        return self.position < len(self.prompt)

    def took_part(self, live: bool) -> None:
        """A tick is over; whether it had the caller's audio."""
        self.position += 1
        self.heard += live

    def record(self, column: torch.Tensor, heard: np.ndarray | None) -> None:
        """Keep the column that a tick made, and the audio that it heard: None in prefill."""
        self.columns.append(column)
        if heard is not None:
            self.audio.append(heard)


class RowTable:
    """The row of each slot, and what is kept by row: the draws of sampled sessions."""

    def __init__(self, slots: int, rows: int) -> None:
        self.rows = rows
        self.row_of = list(range(slots))
        self._draws: dict[int, Draws] = {}

    def __len__(self) -> int:
        """How many draws are held."""
        return len(self._draws)

    def seat(self, row: int, seed: int | None) -> None:
        """A new session's draws; none for a greedy one."""
        if seed is not None:
            self._draws[row] = Draws(seed)

    def vacate(self, row: int) -> None:
        """Its session has left."""
        self._draws.pop(row, None)

    def draws(self, row: int) -> Draws | None:
        """Those of the session in this row; None: it is greedy."""
        return self._draws.get(row)

    def arrange(self, slots: list[int]) -> list[int]:
        """Give the rows to the slots in this order, from row 0 on. Returns where each row's contents came from, a permutation."""
        before = [self.row_of[slot] for slot in slots]
        held, self._draws = self._draws, {}
        for row, source in enumerate(before):
            self.row_of[slots[row]] = row
            self.move(held, source, row)
        return before + sorted(set(range(self.rows)) - set(before))

    def move(self, held: dict[int, Draws], source: int, row: int) -> None:
        """The draws of a session go with it, and stay nowhere else."""
        draws = held.pop(source, None)
        if draws is not None:
            self._draws[row] = draws


class Slots:
    """The occupants, by slot, and the slots that nobody has."""

    def __init__(self, slots: int, rows: int) -> None:
        self.occupants: list[Occupant | None] = [None] * slots
        self.table = RowTable(slots, rows)
        self._free = set(range(slots))
        self._epochs = [0] * slots

    @property
    def unoccupied(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def free(self) -> int | None:
        """The first free slot, if there is one."""
        return min(self._free, default=None)

    def occupied(self) -> list[int]:
        """The slots of all occupants, in order."""
        return [slot for slot, occupant in enumerate(self.occupants) if occupant is not None]

    def seat(self, slot: int, session: Session, prompt: Prompt, tick: int) -> Occupant:
        """The next occupant of a free slot, at the engine's `tick`."""
        occupant = self.occupants[slot] = Occupant(session, self._epochs[slot], prompt, tick % RING)
        self._free.discard(slot)
        self._epochs[slot] += 1
        self.table.seat(self.table.row_of[slot], session.seed)
        return occupant

    def vacate(self, slot: int) -> None:
        """The occupant, if there is one, leaves."""
        if self.occupants[slot] is not None:
            self.table.vacate(self.table.row_of[slot])
            self.give_back(slot)
            self.occupants[slot] = None

    def give_back(self, slot: int) -> None:
        """Somebody else can have the slot, however short its occupant's stay was."""
        self._free.add(slot)
