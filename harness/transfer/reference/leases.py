"""Payloads that are sent for a time: after it their sender holds nothing for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from harness.core.clock import Clock
from harness.transfer.reference.worker import start_joined

log = logging.getLogger(__name__)


class Leases:
    """Calls `expire(name)` once for each lease that runs out, on a thread of its own that starts with the first lease. Thread-safe."""

    def __init__(self, expire: Callable[[str], None], clock: Clock) -> None:
        self._expire, self._clock = expire, clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._closing = False
        self._changes = 0

    def begin(self, name: str, seconds: float) -> None:
        """The lease of `name` ends `seconds` from now; an earlier one of that name ends unheard. RuntimeError after `close`."""
        with self._lock:
            if self._closing:
                raise RuntimeError(f"no lease of {name}: its keeper is closed")
            self._until[name] = self._clock.now() + seconds
            self._changes += 1
            if self._thread is None:
                self._alive = True
                self._thread = start_joined("kv-leases", self._loop)
        self._clock.notify()

    def end(self, name: str) -> None:
        """Nothing is left to expire. Of a lease that runs out at this moment, `expire` has returned: it frees nothing that comes later."""
        with self._lock:
            self._until.pop(name, None)

    def names(self) -> list[str]:
        """What has a lease that runs."""
        with self._lock:
            return list(self._until)

    def close(self) -> None:
        """End every lease now."""
        with self._lock:
            names, self._closing = list(self._until), True
            self._until.clear()
        self._clock.notify()
        if self._thread is not None:
            self._clock.wait(lambda: not self._alive)
            self._thread.join()
        for name in names:
            self._run_out(name)

    def _loop(self, joined: threading.Event) -> None:
        with self._clock.participant():
            joined.set()
            try:
                while not self._closing:
                    self._wait()
                    with self._lock:
                        for name in self._ended():
                            self._run_out(name)
            finally:
                self._alive = False
                self._clock.notify()

    def _wait(self) -> None:
        """Until the next lease ends, or another one begins."""
        with self._lock:
            changes, next_end = self._changes, min(self._until.values(), default=None)
        left = None if next_end is None else max(0.0, self._left(next_end))
        self._clock.wait(lambda: self._closing or self._changes != changes, left, idle=True)

    def _ended(self) -> list[str]:
        """Under the lock, as the expiry that follows: whoever begins or ends a lease of that name comes before both, or after."""
        ended = [name for name, until in self._until.items() if self._left(until) <= 0]
        for name in ended:
            del self._until[name]
        return ended

    def _left(self, until: float) -> float:
        """Seconds, to the nanosecond: nine ticks are a little more than nine thousandths in floats, and a lease ends on its tick."""
        return round(until - self._clock.now(), 9)

    def _run_out(self, name: str) -> None:
        try:
            self._expire(name)
        except Exception:
            # The keeper goes on: the other leases still end.
            log.exception("the lease of %s ended, but its payload could not be freed", name)
