"""Clocks that engines are given. Reference engines never ask the system for the time and never sleep.

`VirtualClock` makes background work deterministic: time moves only when every participating thread waits on the clock, or when a test
advances it. A wait that nothing can end raises `Deadlock` instead of hanging.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

TICK = 1e-3
"""Seconds of virtual time that a lab calls one tick."""

Predicate = Callable[[], bool]


class Deadlock(RuntimeError):
    """Every participant waits, and no deadline is left that could wake one."""


class Clock(Protocol):
    """Time in seconds since the clock was made, and waiting on it."""

    def now(self) -> float: ...

    def wait(self, ready: Predicate, timeout: float | None = None, *, idle: bool = False) -> bool:
        """Block until `ready()`, or until `timeout` seconds have passed; returns the last `ready()`.

        `idle` says that the caller has nothing to do until someone gives it work: it may wait for ever.
        """
        ...

    def notify(self) -> None:
        """Something that a predicate reads has changed."""
        ...

    @contextmanager
    def participant(self) -> Iterator[None]:
        """The calling thread works for the engine inside the block."""
        ...


class SystemClock:
    """Wall time."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._changed = threading.Condition()

    def now(self) -> float:
        return time.monotonic() - self._start

    def wait(self, ready: Predicate, timeout: float | None = None, *, idle: bool = False) -> bool:
        with self._changed:
            return self._changed.wait_for(ready, timeout)

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def participant(self) -> Iterator[None]:
        yield


class _Waiter:
    __slots__ = ("deadline", "ready")

    def __init__(self, ready: Predicate, deadline: int | None) -> None:
        self.ready, self.deadline = ready, deadline


def _nanoseconds(seconds: float) -> int:
    """Whole nanoseconds, at least one for any positive time, so that a wait in a loop cannot stand still."""
    return max(1, round(seconds * 1e9)) if seconds > 0 else 0


class VirtualClock:
    """Time that passes only when nobody has anything left to do.

    The thread that made the clock participates; a worker joins with `participant()`, and whoever starts a worker goes on only once it
    has joined: until then the clock does not know that somebody works. A participant that is not inside `wait` is taken to be running,
    so time stands still. Participants are counted, not named: a thread that waits on behalf of one that blocks elsewhere stands in for
    it. Predicates are read under the clock's lock: keep them short and take no lock in them. Time is kept in whole nanoseconds, so that
    ten single ticks are ten ticks.
    """

    def __init__(self) -> None:
        self._now = 0
        self._changed = threading.Condition()
        self._participants = 1
        self._waiters: list[_Waiter] = []
        self._advancing = False

    def now(self) -> float:
        return self._now / 1e9

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def participant(self) -> Iterator[None]:
        with self._changed:
            self._participants += 1
        try:
            yield
        finally:
            with self._changed:
                self._participants -= 1
                self._changed.notify_all()

    def wait(self, ready: Predicate, timeout: float | None = None, *, idle: bool = False) -> bool:
        with self._changed:
            waiter = _Waiter(ready, None if timeout is None else self._now + _nanoseconds(timeout))
            self._waiters.append(waiter)
            self._changed.notify_all()
            try:
                while not ready() and not self._expired(waiter):
                    if not self._jump(idle):
                        self._changed.wait()
            finally:
                self._waiters.remove(waiter)
            return ready()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; returns once every other participant waits beyond that. Call it from a participant outside `wait`."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: advance({seconds})")
        with self._changed:
            target = self._now + _nanoseconds(seconds)
            self._advancing = True
            try:
                while True:
                    self._changed.wait_for(lambda: self._settled(besides=1))
                    due = [w.deadline for w in self._waiters if w.deadline is not None and w.deadline <= target]
                    if not due:
                        break
                    self._now = max(self._now, min(due))
                    self._changed.notify_all()
                self._now = target
            finally:
                self._advancing = False
                self._changed.notify_all()

    def _expired(self, waiter: _Waiter) -> bool:
        return waiter.deadline is not None and self._now >= waiter.deadline

    def _settled(self, besides: int = 0) -> bool:
        """Whether all participants but `besides` wait for something that is neither ready nor due."""
        return len(self._waiters) >= self._participants - besides and not any(w.ready() or self._expired(w) for w in self._waiters)

    def _jump(self, idle: bool) -> bool:
        """Move to the earliest deadline if all wait; True if time moved."""
        if self._advancing or not self._settled():
            return False
        deadlines = [w.deadline for w in self._waiters if w.deadline is not None]
        if not deadlines:
            if idle:
                return False
            raise Deadlock(f"all {self._participants} participants wait at t = {self.now():.3f} s and no deadline is left")
        self._now = min(deadlines)
        self._changed.notify_all()
        return True
