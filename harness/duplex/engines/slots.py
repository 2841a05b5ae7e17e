"""Who occupies which slot of an engine that knows rows only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _Slot:
    occupied: bool = False
    epoch: int = -1
    frames: int = 0


class Slots:
    """Occupants of `count` slots, all free at first: their epochs, and how many LIVE frames each was given."""

    def __init__(self, count: int) -> None:
        self._slots = [_Slot() for _ in range(count)]

    @property
    def occupied(self) -> int:
        """How many slots are."""
        return sum(slot.occupied for slot in self._slots)

    def is_occupied(self, slot: int) -> bool:
        return self._at(slot).occupied

    def free(self) -> int:
        """The first free slot; RuntimeError where there is none."""
        for index, slot in enumerate(self._slots):
            if not slot.occupied:
                return index
        raise RuntimeError(f"none of the {len(self._slots)} slots is free; release one, or raise the option batch")

    def occupy(self, slot: int) -> None:
        """The next occupant takes the slot, occupied or free; ValueError for a slot that there is not."""
        self._slots[self._index(slot)] = _Slot(occupied=True, epoch=self._at(slot).epoch + 1)

    def vacate(self, slot: int) -> None:
        """The occupant leaves; ValueError for a slot that is free, or that there is not."""
        if not self.is_occupied(slot):
            raise ValueError(f"slot {slot} is free")
        self._at(slot).occupied = False

    def epoch(self, slot: int) -> int:
        """Which occupant the slot has, or had last, from 0; 0 where it never had one."""
        return max(self._at(slot).epoch, 0)

    def delivered(self, slot: int) -> int:
        """Count a LIVE frame of the occupant, and say which one it is, from 0."""
        self._at(slot).frames += 1
        return self._at(slot).frames - 1

    def _at(self, slot: int) -> _Slot:
        return self._slots[self._index(slot)]

    def _index(self, slot: int) -> int:
        if not 0 <= slot < len(self._slots):
            raise ValueError(f"slot {slot}: there are {len(self._slots)}, from 0")
        return slot
