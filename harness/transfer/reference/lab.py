"""The lab of the reference engine: a late or a failing copy, placed by a check."""

from __future__ import annotations

import threading
from collections import Counter

from harness.core.clock import TICK, VirtualClock


class InjectedFailure(RuntimeError):
    """Raised inside the engine by `fail_next`."""


class ReferenceLab:
    """One for all managers of an engine. `copy` is what turns received bytes into a delivered payload."""

    OPS = ("copy",)

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
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
            lag, fails = self._lags[op], self._failures[op] > 0
            self._failures[op] -= fails
        if lag:
            self._clock.wait(lambda: False, lag * TICK)
        if fails:
            raise InjectedFailure(f"{op} failed, as the lab was told")

    def _known(self, op: str) -> None:
        if op not in self.OPS:
            raise ValueError(f"unknown operation {op!r}; this lab knows {', '.join(self.OPS)}")
