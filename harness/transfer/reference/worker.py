"""One background thread that does jobs in the order they came, on an engine's clock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from harness.core.clock import Clock

Job = TypeVar("Job")

START_LIMIT = 10.0
"""Seconds of wall time for a new thread to come up."""
STOP_LIMIT = 60.0
"""Seconds of the clock for the job under way to end on close."""


def start_joined(name: str, loop: Callable[[threading.Event], None]) -> threading.Thread:
    """A daemon thread that runs `loop(joined)`, which sets `joined` once it participates in its clock. TimeoutError if it does not come up.

    Until then a virtual clock would let time pass as if nobody worked.
    """
    joined = threading.Event()
    thread = threading.Thread(target=loop, args=(joined,), name=name, daemon=True)
    thread.start()
    if not joined.wait(START_LIMIT):
        raise TimeoutError(f"{name} did not start within {START_LIMIT:g} s")
    return thread


class Worker(Generic[Job]):
    """Starts its thread with the first job. `run(job)` is called on that thread and must not raise."""

    def __init__(self, name: str, run: Callable[[Job], None], clock: Clock) -> None:
        self._name, self._run, self._clock = name, run, clock
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._left = False

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Queue a job. RuntimeError after `close`."""
        with self._lock:
            if self._closing:
                raise RuntimeError(f"{self._name} is closed")
            self._jobs.append(job)
            if self._thread is None:
                self._thread = start_joined(self._name, self._loop)
        self._clock.notify()

    def cancel(self, job: Job) -> bool:
        """Take a job that has not begun out of the queue; False if it has begun."""
        with self._lock:
            if job not in self._jobs:
                return False
            self._jobs.remove(job)
            return True

    def close(self) -> None:
        """Forget queued jobs, let the one under way end, and end the thread. TimeoutError if it does not end within STOP_LIMIT."""
        with self._lock:
            self._closing = True
            self._jobs.clear()
        self._clock.notify()
        if self._thread is None:
            return
        # The clock must see this thread wait, or a job that waits for virtual time would never end.
        if not self._clock.wait(lambda: self._left, STOP_LIMIT):
            raise TimeoutError(f"{self._name} did not end its job within {STOP_LIMIT:g} s")
        self._thread.join()

    def _loop(self, joined: threading.Event) -> None:
        with self._clock.participant():
            joined.set()
            try:
                while not self._closing:
                    self._clock.wait(lambda: self._closing or bool(self._jobs), idle=True)
                    self._work()
            finally:
                self._left = True
                self._clock.notify()

    def _work(self) -> None:
        """Do one job. Its name ends with this frame, so that an idle worker keeps no payload alive."""
        with self._lock:
            if not self._jobs:
                return
            job = self._jobs.popleft()
        self._run(job)
