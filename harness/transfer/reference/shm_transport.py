"""A transport: the directory in shared memory in which connectors meet, and who lives there.

    assay-shm-<random>/            every live peer holds a shared lock on it
        guard                      locked while a payload is published, counted down or freed
        peer-<n>/                  its peer holds an exclusive lock on it; one file a segment
        held/<hash of a slot>      a second link to the segment that holds the slot's payload

All locks are flock(2): they end with their process, so what a killed one left can be told from what is in use, and is swept by whoever
starts, closes or calls `sweep` next. A file's inode lives as long as somebody maps it: what a reader holds outlasts its names.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

ROOT = Path("/dev/shm")
PREFIX = "assay-shm-"
PEER = "peer-"
GUARD_LIMIT = 10.0
"""Seconds to wait for the guard, which is held for microseconds: a peer that keeps it longer is stopped."""
_POLL = 1e-3


def unavailable(root: Path = ROOT) -> str | None:
    """Why there is no shared memory under `root`, or None."""
    if not root.is_dir():
        return f"{root} does not exist: no shared memory is mounted there"
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return f"{root} is not writable for this user"
    if _filesystem(root) != "tmpfs":
        return f"{root} is no tmpfs but {_filesystem(root) or 'unknown'}: its files would go to a disk"
    return None


def sweep_root(root: Path = ROOT) -> None:
    """Remove the transports in which nobody lives any more. What belongs to another user is left alone."""
    for path in root.glob(f"{PREFIX}*"):
        remove_abandoned(path)


def remove_abandoned(path: Path) -> bool:
    """Remove a directory that nobody holds a lock on; False where somebody does, or it is not there."""
    fd = _open_directory(path)
    if fd is None:
        return False
    try:
        if not try_lock(fd, fcntl.LOCK_EX):
            return False
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(fd)


def try_lock(fd: int, how: int) -> bool:
    """Take a lock without waiting; False where another open file holds one against it."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Transport:
    """One peer's membership. `address` None makes a transport of its own; else it joins that one.

    ValueError for an address that names no transport, ConnectionError for one that is gone or another user's.
    """

    def __init__(self, address: str | None, root: Path = ROOT) -> None:
        sweep_root(root)
        self.path, alive = _create(root) if address is None else _join(address, root)
        self.held = self.path / "held"
        self._threads = threading.Lock()
        self._left = False
        self._files = [alive]
        try:
            self._move_in()
        except BaseException:
            self.abandon()
            remove_abandoned(self.path)
            raise

    @property
    def home(self) -> Path:
        """Where this peer's segments lie."""
        return self.path / f"{PEER}{self.peer}"

    @contextmanager
    def guard(self) -> Iterator[None]:
        """One peer and one thread at a time. TimeoutError after GUARD_LIMIT seconds; ConnectionError once this peer has left."""
        deadline = time.monotonic() + GUARD_LIMIT
        if not self._threads.acquire(timeout=GUARD_LIMIT):
            raise TimeoutError(f"{self.path}: another thread held the guard for {GUARD_LIMIT:g} s")
        try:
            if self._left:
                raise ConnectionError(f"{self.path}: this connector is closed")
            while not try_lock(self._guard, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.path}: another process held the guard for {GUARD_LIMIT:g} s; is a peer stopped?")
                time.sleep(_POLL)  # flock knows no deadline
            try:
                yield
            finally:
                fcntl.flock(self._guard, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def sweep(self) -> None:
        """Remove what dead peers left here, and transports in which nobody lives."""
        with self.guard():
            self._sweep()
        sweep_root(self.path.parent)

    def leave(self) -> None:
        """Remove this peer's segments and what dead peers left; the last one removes the transport. Called once."""
        try:
            with self.guard():
                shutil.rmtree(self.home, ignore_errors=True)
                self._sweep()
        finally:
            # Also where a stopped peer keeps the guard: once these locks are gone, others sweep what is left.
            with self._threads:
                self._left = True
                self.abandon()
        remove_abandoned(self.path)

    def abandon(self) -> None:
        """Close the files of this process. Its locks end with that, but in a forked child: there the parent's stay."""
        while self._files:
            os.close(self._files.pop())

    def _move_in(self) -> None:
        self.held.mkdir(mode=0o700, exist_ok=True)
        self._guard = os.open(self.path / "guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._files.append(self._guard)
        with self.guard():
            self.peer, lock = self._register()
            self._files.append(lock)
            self._sweep()

    def _register(self) -> tuple[int, int]:
        """The lowest number that no live peer has: a peer that restarts gets its old one again, and its segments their old names."""
        for number in count():
            path = self.path / f"{PEER}{number}"
            path.mkdir(mode=0o700, exist_ok=True)
            fd = _open_directory(path)
            if fd is None:
                raise ConnectionError(f"{path} cannot be opened: the transport is being removed, or its rights were changed")
            if try_lock(fd, fcntl.LOCK_EX):
                for left in path.iterdir():
                    left.unlink()
                return number, fd
            os.close(fd)
        raise AssertionError("count() does not end")

    def _sweep(self) -> None:
        """Under the guard. A segment that lost its own name has only its published link left."""
        for path in self.path.glob(f"{PEER}*"):
            if path != self.home:
                remove_abandoned(path)
        for entry in os.scandir(self.held):
            if entry.stat(follow_symlinks=False).st_nlink == 1:
                Path(entry.path).unlink()


def _create(root: Path) -> tuple[Path, int]:
    """A new directory and the shared lock on it. Until the lock is taken another process may sweep the directory: then it is made again."""
    while True:
        path = root / f"{PREFIX}{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        fd = _enter(path)
        if fd is not None:
            return path, fd


def _join(address: str, root: Path) -> tuple[Path, int]:
    path = Path(address)
    if path.parent != root or not path.name.startswith(PREFIX):
        raise ValueError(f"address {address!r}: a transport is called {root / PREFIX}...")
    try:
        owner = path.lstat().st_uid
    except FileNotFoundError:
        raise ConnectionError(f"{address} is gone: its last peer closed") from None
    if owner != os.geteuid():
        raise ConnectionError(f"{address} belongs to user {owner}, this is user {os.geteuid()}")
    fd = _enter(path)
    if fd is None:
        raise ConnectionError(f"{address} is gone: its last peer closed")
    return path, fd


def _enter(path: Path) -> int | None:
    """The shared lock of a live peer; None where the directory is gone or somebody is removing it."""
    fd = _open_directory(path)
    if fd is None:
        return None
    if try_lock(fd, fcntl.LOCK_SH) and is_at(fd, path):
        return fd
    os.close(fd)
    return None


def is_at(fd: int, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _open_directory(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


def _filesystem(path: Path) -> str:
    """The type of the file system that is mounted at exactly this path, "" if none is."""
    mounted = ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split(" ")
        if where == str(path):
            mounted = kind
    return mounted
