"""The labs of the reference engines: a late or a failing step, placed by a check."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from harness.core.clock import TICK, VirtualClock


class InjectedFailure(RuntimeError):
    """Raised inside the engine by `fail_next`."""


class ReferenceLab:
    """One for all that an engine makes; `ops` are the operations that it can reach.

    `copy`   turns received bytes into a delivered payload (a manager)
    `store`  copies a payload inside a put, which has made half of the copy when it gets here (a connector)
    `damage` takes no time; when told to fail it changes one bit of the payload that is put next, behind its checksum (a connector)
    """

    def __init__(self, clock: VirtualClock, ops: Sequence[str] = ("copy",)) -> None:
        self._clock, self._ops = clock, tuple(ops)
        self._lock = threading.Lock()
        self._lags: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self.free_memory: float | None = None
        """The share of device memory that the engine is to find free; None: as it is."""

    def lag(self, op: str, ticks: int) -> None:
        """From now on `op` takes `ticks` ticks of virtual time; 0 ends the lag."""
        self._known(op)
        if ticks < 0:
            raise ValueError(f"a lag of {ticks} ticks; it is at least 0")
        if op == "damage":
            raise ValueError("damage takes no time; fail_next('damage') does it to the next payload")
        with self._lock:
            self._lags[op] = ticks

    def fail_next(self, op: str) -> None:
        """The next `op` to begin raises InjectedFailure when its lag has passed. Called twice, it fails the next two."""
        self._known(op)
        with self._lock:
            self._failures[op] += 1

    def advance(self, ticks: int) -> None:
        self._clock.advance(ticks * TICK)

    def enter(self, op: str) -> None:
        """Called by the engine where it begins `op`."""
        with self._lock:
            lag = self._lags[op]
        fails = self.takes(op)
        if lag:
            self._clock.wait(lambda: False, lag * TICK)
        if fails:
            raise InjectedFailure(f"{op} failed, as the lab was told")

    def takes(self, op: str) -> bool:
        """Whether this `op` is one that `fail_next` asked for; called by the engine once for each."""
        with self._lock:
            fails = self._failures[op] > 0
            self._failures[op] -= fails
            return fails

    def _known(self, op: str) -> None:
        if op not in self._ops:
            raise ValueError(f"unknown operation {op!r}; this lab knows {', '.join(self._ops)}")


class ConnectorLab(Protocol):
    """What a connector of ours asks inside a put: a `ReferenceLab`, or a `Pause`."""

    def enter(self, op: str) -> None:
        """The operation has got half-way."""
        ...

    def takes(self, op: str) -> bool:
        """Whether this one is to fail."""
        ...


class Pause:
    """Stops a process for good where it enters `op`, so that another one can kill it there.

    Takes the place of the lab of a connector engine, before its connector is made. When a put gets there it writes one byte to the file
    descriptor `tell`, the writing end of a pipe or a socket, and then waits until the process ends.
    """

    def __init__(self, op: str, tell: int) -> None:
        self._op, self._tell = op, tell

    def enter(self, op: str) -> None:
        if op == self._op:
            os.write(self._tell, b".")
            threading.Event().wait()

    def takes(self, op: str) -> bool:
        return False
