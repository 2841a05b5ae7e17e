"""Every call of an engine passes here: a raised exception becomes a finding, and a call that does not return in time is interrupted.

The interrupt is a signal in the main thread, so it reaches waits on locks and sleeps; a call that never returns to the interpreter
is left to pytest-timeout. An engine that swallows the interrupt is found out when its call returns.
"""

from __future__ import annotations

import faulthandler
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any

from harness.core.verdict import DeadlineMissed, EngineRaised, Finding

DEFAULT_DEADLINE = 30.0
"""Seconds of wall time that one engine call may take, unless --deadline says otherwise."""

REPEAT = 1.0
"""Seconds between two interrupts of one call."""

BUILD_DEADLINE = 900.0
"""Seconds for a build, which may read many gigabytes of weights."""


class Stopwatch:
    """Adds up the wall time that passes inside engine calls of the main thread, so that a run can say what the harness costs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started
            self.calls += 1


ENGINE_TIME = Stopwatch()


class _Interrupt(BaseException):
    """Breaks an engine call off. Not an Exception: an engine's blanket `except Exception` must not stop it."""


class _Deadline:
    """The timer of the outermost engine call of the main thread."""

    def __init__(self) -> None:
        self.stacks = ""
        self.running = False

    def expired(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.running:
            return
        if not self.stacks:
            self.stacks = dump_stacks()
        raise _Interrupt

    @contextmanager
    def over(self, seconds: float) -> Iterator[None]:
        self.stacks = ""
        before = signal.signal(signal.SIGALRM, self.expired)
        # Armed inside the try: a very short deadline is over at once, and must find the way out that disarms it.
        try:
            self.running = True
            # Repeats, because an engine may swallow the first interrupt and wait again; not so soon that the way out is hit too.
            signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT)
            yield
        finally:
            # Nested, because the alarm may still go off before the first statement here has run.
            try:
                self.running = False
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)


_DEADLINE = _Deadline()


def dump_stacks() -> str:
    """Where every thread stands now."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def call(name: str, function: Callable[..., Any], *args: Any, deadline: float = DEFAULT_DEADLINE, **kwargs: Any) -> Any:
    """Call the engine. Raises EngineRaised or DeadlineMissed, both findings; a finding raised inside passes through."""
    timed = not _DEADLINE.running and threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if not timed:
        return _translated(name, function, args, kwargs)
    interrupted = False
    result = None
    try:
        with _DEADLINE.over(deadline), ENGINE_TIME.running():
            result = _translated(name, function, args, kwargs)
    except _Interrupt:
        interrupted = True
    except Finding:
        if not _DEADLINE.stacks:
            raise
    if interrupted or _DEADLINE.stacks:
        missed = f"{name}() did not return within {deadline:g} s"
        raise DeadlineMissed("DEADLINE MISSED", got=missed, expected="every engine call returns", stacks=_DEADLINE.stacks)
    return result


def _translated(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except Finding:
        raise
    except (Exception, SystemExit) as raised:  # an engine that leaves the process is one that raised
        frame = traceback.extract_tb(raised.__traceback__)[-1]
        text = f"{type(raised).__name__}: {raised}".splitlines()[0]
        raise EngineRaised("ENGINE RAISED", got=f"{text} (from {name}(), at {frame.filename}:{frame.lineno})") from raised


class Guarded:
    """A proxy of an engine, or of what it deploys: calls are guarded, and what `wraps` names returns guarded objects too.

    `unguarded` is the object itself, for code of ours that hands it on to the engine.
    """

    def __init__(self, target: Any, deadline: float, wraps: tuple[str, ...] = ()) -> None:
        self.unguarded = target
        self._deadline = deadline
        self._wraps = wraps

    def __getattr__(self, name: str) -> Any:
        value = call(name, getattr, self.unguarded, name, deadline=self._deadline)
        if not callable(value):
            return value
        guarded = self._method(name, value)
        # The next look-up finds the wrapper on the proxy itself.
        self.__dict__[name] = guarded
        return guarded

    def _method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            result = call(name, method, *args, deadline=self._deadline, **kwargs)
            return Guarded(result, self._deadline) if name in self._wraps else result

        return guarded
