"""Locks between the processes of one user on one host, and a queue of those that wait. Linux's `flock`, in a folder that all of them see.

What holds: a lock ends with its process, however that ends (SIGKILL, a closed terminal): the kernel closes its descriptors. A program that
the process starts does not inherit it (close-on-exec), and so neither does a fork server nor what that forks. A child that Python forks
closes it first thing. Only a fork made in C that runs no other program would keep a lock alive; nothing here does that. Not covered: other
users, and containers with folders of their own.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAUSE = 0.02
"""Seconds between two looks at a lock: flock itself waits without a deadline."""

_OPEN: set[int] = set()
"""Descriptors of this process's locks."""


def _close_in_child() -> None:
    """A forked child shares the locks of its parent for as long as it has the descriptors; closing them there unlocks nothing."""
    for descriptor in _OPEN:
        os.close(descriptor)
    _OPEN.clear()


os.register_at_fork(after_in_child=lambda: _close_in_child())


class FileLock:
    """An exclusive lock on a file, which holds a text for those that do not get it. Taken by `try_lock`, let go by `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _OPEN.add(self._descriptor)

    def try_lock(self) -> bool:
        """Whether this process holds it now. Returns at once."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def write(self, text: str) -> None:
        """Say something to those that find the file locked."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode(), 0)

    def read(self) -> str:
        """What its holder wrote, or its last one."""
        return os.pread(self._descriptor, 4096, 0).decode(errors="replace")

    def close(self) -> None:
        """May be called twice, and in a forked child."""
        if self._descriptor in _OPEN:
            _OPEN.remove(self._descriptor)
            os.close(self._descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock now."""
    lock = FileLock(path)
    try:
        return not lock.try_lock()
    finally:
        lock.close()


class Queue:
    """Processes that wait in the order in which they came, those that died left out. One file a place, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    @contextmanager
    def place(self, text: str, until: float) -> Iterator[Place]:
        """A place at the end of the queue; `text` says who stands there. TimeoutError after `until`, of `time.monotonic`."""
        place = self._enter(text, until)
        try:
            yield place
        finally:
            place.leave()

    def _enter(self, text: str, until: float) -> Place:
        door = FileLock(self._folder / "door")
        try:
            while not door.try_lock():
                if time.monotonic() > until:
                    raise TimeoutError(f"{door.path} is locked, by {door.read() or 'nobody that says so'}")
                time.sleep(PAUSE)
            # Behind the door a place is made and locked in one go: nobody takes it for one whose process died.
            last = max((int(path.name) for path in self._places()), default=0)
            number = max(last, _number(door.read())) + 1
            lock = FileLock(self._folder / f"{number:012}")
            if not lock.try_lock():
                raise RuntimeError(f"{lock.path} is locked although nobody was given that place; remove the folder {self._folder}")
            lock.write(text)
            door.write(str(number))
            return Place(self, lock, number)
        finally:
            door.close()

    def _places(self) -> list[Path]:
        return sorted(path for path in self._folder.iterdir() if path.name.isdecimal())

    def before(self, number: int) -> list[str]:
        """The texts of those that stand before place `number`, in their order. Places whose process died are cleared away."""
        texts = []
        for path in self._places():
            if int(path.name) < number and (text := _text_of(path)) is not None:
                texts.append(text)
        return texts


class Place:
    """Where a process stands in a queue."""

    def __init__(self, queue: Queue, lock: FileLock, number: int) -> None:
        self._queue, self._lock, self._number = queue, lock, number

    def before(self) -> list[str]:
        """The texts of those that came earlier and wait still; empty for the first."""
        return self._queue.before(self._number)

    def leave(self) -> None:
        self._lock.path.unlink(missing_ok=True)
        self._lock.close()


def _text_of(path: Path) -> str | None:
    """What the holder of a place wrote; None where it left or died, and then the place is gone. Numbers are not given twice."""
    lock = FileLock(path)
    try:
        if not lock.try_lock():
            return lock.read()
        path.unlink(missing_ok=True)
        return None
    finally:
        lock.close()


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
