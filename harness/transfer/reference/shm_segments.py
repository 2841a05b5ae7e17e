"""A sender's segments: files in its own directory, kept and written again once nobody needs what is in them."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import threading
from pathlib import Path

import numpy as np

from harness.transfer.reference.shm_transport import try_lock

SMALLEST = 64 << 10
"""Bytes of the smallest segment."""
KEPT_SEGMENTS, KEPT_BYTES = 16, 1 << 30
"""How many free segments are kept for the next put, and how much they may hold together."""


class Segment:
    """One file, mapped. It is made taken: locked for writing, until `give_back`."""

    def __init__(self, home: Path, number: int, capacity: int) -> None:
        self.number, self.capacity, self.path = number, capacity, home / str(number)
        self.incarnation = secrets.token_bytes(16)
        self.uses = 0
        self.slot: bytes | None = None
        """What was published in it last."""
        self.size = 0
        """Bytes of that payload."""
        self._reserved = 0
        self._lock: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.ftruncate(self._lock, capacity)
            # Of another open file: a mapping keeps its own open, and the lock must end before it.
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._bytes = np.frombuffer(mmap.mmap(fd, capacity), dtype=np.uint8)
            finally:
                os.close(fd)
        except BaseException:
            self.remove()
            raise

    @property
    def taken(self) -> bool:
        """Being written, or not published yet."""
        return self._lock is not None

    @property
    def published(self) -> bool:
        """Whether a link leads to it beside its own name."""
        return self.path.stat().st_nlink > 1

    def take(self) -> bool:
        """Lock it for writing, if it is neither taken, nor published, nor held by a reader."""
        if self.taken or self.published:
            return False
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        if not try_lock(fd, fcntl.LOCK_EX):
            os.close(fd)
            return False
        self._lock = fd
        return True

    def reserve(self, size: int) -> None:
        """Have memory behind the first `size` bytes: a full file system is an OSError here, not a SIGBUS in the copy."""
        if size > self._reserved:
            os.posix_fallocate(self._lock, 0, size)
            self._reserved = size

    def write(self, offset: int, data: memoryview | bytes) -> None:
        """One copy, outside of the interpreter's lock."""
        np.copyto(self._bytes[offset : offset + len(data)], np.frombuffer(data, dtype=np.uint8))

    def flip_bit(self, offset: int) -> None:
        """Change one bit, as failing memory would."""
        self._bytes[offset] ^= 1

    def unlock(self) -> None:
        """It is written: readers may lock it."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def give_back(self) -> None:
        """Whoever took it is done, written or not. In a forked child the parent's lock stays."""
        fd, self._lock = self._lock, None
        if fd is not None:
            os.close(fd)

    def remove(self) -> None:
        """Its name goes, and its memory once no reader maps it any more."""
        self.give_back()
        self.path.unlink(missing_ok=True)


class SegmentPool:
    """All segments of one peer. Thread-safe."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        """The one used longest ago first."""
        self._made = 0
        self._closed = False

    def take(self, size: int) -> Segment:
        """A segment of at least `size` bytes, locked for writing. ConnectionError where none can be had."""
        with self._lock:
            if self._closed:
                raise ConnectionError(f"{self._home}: its connector is closed")
            try:
                return self._take(size)
            except OSError:
                self._keep(0, 0)
            try:
                return self._take(size)
            except OSError as error:
                root = self._home.parent.parent
                remedy = "raise ulimit -n" if error.errno in (errno.EMFILE, errno.ENFILE) else f"enlarge {root}"
                raise ConnectionError(
                    f"no segment of {size} bytes in {root}: {error.strerror}; {remedy}, or free some of {len(self._segments)} payloads"
                ) from error

    def give_back(self, segment: Segment) -> None:
        """The put that took it has ended."""
        with self._lock:
            segment.give_back()
            if self._closed:
                segment.remove()

    def published(self) -> list[Segment]:
        """The segments whose payloads are still held."""
        with self._lock:
            return [segment for segment in self._segments if not segment.taken and segment.published]

    def close(self) -> None:
        """Remove the segments; one that a put is writing goes when that ends."""
        with self._lock:
            self._closed = True
            for segment in self._segments:
                if not segment.taken:
                    segment.remove()
            self._segments.clear()

    def abandon(self) -> None:
        """In a forked child: close what would keep the parent's locks."""
        for segment in self._segments:
            segment.give_back()
        self._segments.clear()

    def _take(self, size: int) -> Segment:
        segment = self._fitting(capacity_for(size)) or self._make(capacity_for(size))
        try:
            segment.reserve(size)
        except BaseException:
            self._remove(segment)
            raise
        self._keep(KEPT_SEGMENTS, KEPT_BYTES)
        return segment

    def _fitting(self, capacity: int) -> Segment | None:
        """The free segment that was used last: its memory is warmest, and it is found first."""
        for segment in reversed(self._segments):
            if segment.capacity == capacity and segment.take():
                self._segments.remove(segment)
                self._segments.append(segment)
                return segment
        return None

    def _make(self, capacity: int) -> Segment:
        segment = Segment(self._home, self._made, capacity)
        self._made += 1
        self._segments.append(segment)
        return segment

    def _keep(self, segments: int, size: int) -> None:
        """Remove free segments, the one used longest ago first, while there are more than may be kept."""
        if len(self._segments) <= segments and sum(segment.capacity for segment in self._segments) <= size:
            return
        free = [segment for segment in self._segments if not segment.taken and not segment.published]
        held = sum(segment.capacity for segment in free)
        for left, segment in zip(range(len(free), 0, -1), free, strict=True):
            if left > segments or held > size:
                held -= segment.capacity
                self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        self._segments.remove(segment)
        segment.remove()


def capacity_for(size: int) -> int:
    """`size` rounded up to a quarter of a power of two: few sizes, so that segments fit again, and at most a quarter too large."""
    step = max(SMALLEST, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-max(size, 1) // step) * step
