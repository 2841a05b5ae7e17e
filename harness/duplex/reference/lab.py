"""What the embedded duplex engine offers beyond the protocol: rows that move, poison, failures, and decisions made anew."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

from harness.core.clock import TICK, Clock, VirtualClock
from harness.core.threads import one_thread
from harness.duplex.reference.inlet import SessionError
from harness.duplex.reference.once import decide_anew, decode_anew
from harness.duplex.reference.slots import Occupant

if TYPE_CHECKING:
    from harness.duplex.reference.engine import ReferenceEngine

FRAME = "frame:"


class InjectedFailure(SessionError):
    """Raised inside a session by `fail_next`."""


class ReferenceLab:
    """The lab of one engine. Operations: `frame:<slot>`, the next tick that the slot's occupant takes part in."""

    def __init__(self, engine: ReferenceEngine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._failures: Counter[int] = Counter()
        self.records = isinstance(clock, VirtualClock)
        """Whether sessions keep all that they were given and said: under test, where they are short; it grows with every tick."""

    def compact(self) -> None:
        self._engine.must_be_open()
        slots = self._engine.occupancy
        occupied = slots.occupied()
        order = slots.table.arrange(occupied + [slot for slot in range(self._engine.slots) if slot not in occupied])
        self._engine.tick.move(torch.tensor(order))

    def poison_free(self) -> None:
        self._engine.must_be_open()
        slots = self._engine.occupancy
        free = torch.ones(slots.table.rows, dtype=torch.bool)
        free[[slots.table.row_of[slot] for slot in slots.occupied()]] = False
        self._engine.tick.state.poison(free)

    def one_pass(self, slot: int) -> torch.Tensor:
        with one_thread():
            return decide_anew(self._engine.tick, self._occupant(slot))

    def sound(self, slot: int) -> tuple[torch.Tensor, float]:
        with one_thread():
            return decode_anew(self._engine.tick, self._occupant(slot))

    def transcript(self, slot: int) -> torch.Tensor:
        return torch.stack(self._occupant(slot).columns)

    def lag(self, op: str, ticks: int) -> None:
        """ValueError: the slots go in lockstep, so none of them can be late."""
        self._slot(op)
        raise ValueError(f"{op} cannot lag: a tick is over when step() returns; fail_next({op!r}) makes it fail")

    def fail_next(self, op: str) -> None:
        """Called twice, it fails the next two; `open` forgets it."""
        self._failures[self._slot(op)] += 1

    def advance(self, ticks: int) -> None:
        """Let ticks of the clock that the engine was built with pass: it reads none."""
        if not isinstance(self._clock, VirtualClock):
            raise ValueError("advance needs an engine that was built with a VirtualClock")
        self._clock.advance(ticks * TICK)

    @property
    def failures(self) -> int:
        """How many ticks are still to fail."""
        return self._failures.total()

    def forget(self) -> None:
        """Nothing is to fail any more."""
        self._failures.clear()

    def enter(self, slot: int) -> None:
        """Called by the engine where the occupant of a slot takes part in a tick. Raises InjectedFailure if it was told to."""
        if self._failures[slot]:
            self._failures[slot] -= 1
            raise InjectedFailure(f"{FRAME}{slot} failed, as the lab was told")

    def _occupant(self, slot: int) -> Occupant:
        occupant = self._engine.occupancy.occupants[self._engine.checked(slot)]
        if occupant is None or not occupant.columns:
            raise ValueError(f"slot {slot}: no session has taken part in a tick there")
        return occupant

    def _slot(self, op: str) -> int:
        names: list[str] = [f"{FRAME}{slot}" for slot in range(self._engine.slots)]
        if op not in names:
            raise ValueError(f"unknown operation {op!r}; this lab knows {', '.join(names)}")
        return names.index(op)
