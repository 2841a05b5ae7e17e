"""A child process as its parent sees it: requests with deadlines, signals, and an end that leaves nothing behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from harness.core import faults
from harness.core.blueprint import Blueprint
from harness.core.guard import DEFAULT_DEADLINE
from harness.core.verdict import ClaimBroken, DeadlineMissed, Unavailable
from harness.transfer.processes import child
from harness.transfer.processes.freight import packed, unpacked
from harness.transfer.processes.line import Line, LineBroken

FORKSERVER = multiprocessing.get_context("forkserver")
PRELOADED = ("harness.transfer.processes.child", "harness.transfer.engines.reference", "harness.transfer.faults")

GRACE = 5.0
"""Seconds that a child has for its own clean end, and for the kernel to make an end of a killed one."""

BUILTIN_ERRORS = (ValueError, TypeError, KeyError, RuntimeError, NotImplementedError, TimeoutError, ConnectionError, OSError)


def warm(modules: Iterable[str] = ()) -> None:
    """What the server that children are forked from imports once, beside torch and our own; to be called before the first child.

    Nothing in there may start CUDA or a thread: a fork has neither.
    """
    FORKSERVER.set_forkserver_preload([*PRELOADED, *modules])


class ChildDied(RuntimeError):
    """A child ended while an answer was awaited. `exitcode` as `multiprocessing` has it: -9 for SIGKILL."""

    def __init__(self, name: str, exitcode: int | None) -> None:
        ended = f"was ended by {signal.Signals(-exitcode).name}" if exitcode and exitcode < 0 else f"ended with exit status {exitcode}"
        super().__init__(f"the process of {name} {ended}")
        self.exitcode = exitcode


class RemoteError(RuntimeError):
    """An engine in a child raised what is no built-in exception: `kind` is its type's name, `trace` its traceback there."""

    def __init__(self, kind: str, text: str, trace: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.trace = kind, trace


class Pending:
    """A request under way. Ask for its result once."""

    def __init__(self, owner: Child, what: str) -> None:
        self._owner, self._what = owner, what

    def ended(self) -> bool:
        """Whether there is a result to be had without waiting, or none to be had any more."""
        return self._owner.has_word()

    def result(self, deadline: float | None = None) -> Any:
        """Raises as `Child.call`."""
        return self._owner.answer(self._what, deadline)


class Child:
    """One process with engines in it. It serves one request at a time. A context manager: whatever happens, the process is gone after it.

    `name` stands in errors (`the sender`); `deadline` is in seconds, for each answer.
    """

    def __init__(self, name: str, deadline: float = DEFAULT_DEADLINE) -> None:
        self.name, self._deadline = name, deadline
        ours, theirs = socket.socketpair()
        self._stacks, stacks = socket.socketpair()
        self._lifeline, lifeline = socket.socketpair()
        self._line = Line(ours)
        self._reached: list[str] = []
        self._fit, self._busy = True, False
        self._process = FORKSERVER.Process(target=child.main, args=(theirs, stacks, lifeline), name=f"assay: {name}")
        try:
            self._process.start()
        except BaseException:
            self._hang_up()
            self._lifeline.close()
            raise
        finally:
            for end in (theirs, stacks, lifeline):
                end.close()
        self.pid: int = self._process.pid or 0
        self._closed = False

    def build(self, blueprint: Blueprint) -> child.Kept:
        """The engine, built in the child."""
        return self.keep(child.WORKSHOP, "build", blueprint)

    def call(self, target: int, name: str, *args: Any, **kwargs: Any) -> Any:
        """The result of a method of object number `target` there.

        Raises what it raised: Unavailable, an exception of the same built-in type, or else a RemoteError. ChildDied if the process ends
        meanwhile; DeadlineMissed, with the child's stacks, if no answer comes in time. The child is gone after both.
        """
        return self.begin(target, name, *args, **kwargs).result()

    def keep(self, target: int, name: str, *args: Any, **kwargs: Any) -> child.Kept:
        """As `call`, but the result stays in the child."""
        return self.begin_keep(target, name, *args, **kwargs).result()

    def begin_keep(self, target: int, name: str, *args: Any, **kwargs: Any) -> Pending:
        """As `begin`; the result is a `child.Kept`."""
        return self._ask(child.Request(target, name, args, kwargs, keep=True))

    def read(self, target: int, name: str) -> Any:
        """An attribute's value, or `child.Method`."""
        return self._ask(child.Request(target, name, call=False)).result()

    def begin(self, target: int, name: str, *args: Any, **kwargs: Any) -> Pending:
        """As `call`, without waiting for the end. The next request waits for this one's result."""
        return self._ask(child.Request(target, name, args, kwargs))

    def hold(self, op: str) -> None:
        """From now on the child stops for ever inside the operation `op` of its engine's lab; `reached` waits for that."""
        self.call(child.WORKSHOP, "hold", op)

    def reached(self, op: str) -> None:
        """Return once the child stands inside the held operation. DeadlineMissed, ChildDied as in `call`."""
        until = time.monotonic() + self._deadline
        while op not in self._reached:
            message = self._receive(f"to reach {op}", until - time.monotonic())
            if isinstance(message, child.Answer):
                raise ClaimBroken("OPERATION NOT REACHED", got=f"{self.name} answered", expected=f"it stands inside {op}")

    def answer(self, what: str, deadline: float | None = None) -> Any:
        """The end of the request under way."""
        until = time.monotonic() + (self._deadline if deadline is None else deadline)
        while not isinstance(message := self._receive(what, until - time.monotonic()), child.Answer):
            pass
        self._busy = False
        faults.MISTAKES.extend(message.mistakes)
        if message.error is not None:
            raise _rebuilt(*message.error)
        return unpacked(message.value)

    def has_word(self) -> bool:
        """Whether something has come over the line, its end included."""
        return self._line.is_ready()

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._signal(signal.SIGKILL)
        self._fit = False
        self._process.join(GRACE)
        if self._process.is_alive():
            raise DeadlineMissed("DEADLINE MISSED", got=f"{self.name} lives {GRACE:g} s after SIGKILL", expected="it is gone")

    def stop(self) -> None:
        """SIGSTOP: the process stands still until `cont`."""
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Have the child close its engines and end. Raises what closing raised. May be called twice.

        One that is not gone in time is killed, and so is one that still has a request under way: nobody wants its answer any more.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._fit and not self._busy and self._process.is_alive():
                self.call(child.WORKSHOP, "close")
        finally:
            self._hang_up()
            self._process.join(GRACE if self._fit and not self._busy else 0)
            if self._process.is_alive():
                self.kill()
            self._lifeline.close()
            self._process.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if kind is not None:
            self._fit = False
        self.close()

    def _ask(self, request: child.Request) -> Pending:
        what = f"{request.name}()"
        if not self._fit:
            raise ChildDied(self.name, self._process.exitcode)
        if self._busy:
            raise RuntimeError(f"{what} of {self.name} while another request is under way there; ask for that one's result first")
        args, kwargs = packed(request.args), packed(request.kwargs)
        request = child.Request(request.target, request.name, args, kwargs, request.call, request.keep)
        self._guarded(what, lambda: self._line.send(request, self._deadline))
        self._busy = True
        return Pending(self, what)

    def _receive(self, what: str, deadline: float) -> Any:
        message = self._guarded(what, lambda: self._line.receive(max(deadline, 0.0)))
        if isinstance(message, child.Reached):
            self._reached.append(message.op)
        return message

    def _guarded(self, what: str, wait: Any) -> Any:
        """A wait on the line. One that is broken off half-way leaves half a message there, so the child is of no more use."""
        fit, self._fit = self._fit, False
        try:
            result = wait()
        except TimeoutError:
            raise DeadlineMissed(
                "DEADLINE MISSED",
                got=f"{what} of {self.name} did not return within {self._deadline:g} s",
                expected="every engine call returns",
                stacks=self._final_stacks(),
            ) from None
        except LineBroken:
            self._process.join(GRACE)
            raise ChildDied(self.name, self._process.exitcode) from None
        self._fit = fit
        return result

    def _final_stacks(self) -> str:
        """Where every thread stands. The signal ends the process, so that the end of its text is the end of the line."""
        self._signal(signal.SIGUSR1)
        self._signal(signal.SIGCONT)
        self._stacks.settimeout(GRACE)
        text = bytearray()
        try:
            while part := self._stacks.recv(1 << 16):
                text += part
        except (TimeoutError, ConnectionResetError):
            pass
        return text.decode(errors="replace")

    def _signal(self, number: int) -> None:
        # Where it has ended, the server that forked it has reaped it, and its number may be another's.
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def _hang_up(self) -> None:
        self._line.close()
        self._stacks.close()


def _rebuilt(kind: str, text: str, trace: str) -> Exception:
    """The exception as the protocol names it, with the traceback of the other process as its cause."""
    there = RemoteError(kind, text, trace)
    if kind == Unavailable.__name__:
        return Unavailable(text)
    for known in BUILTIN_ERRORS:
        if known.__name__ == kind:
            same = known(text)
            same.__cause__ = there
            return same
    return there
