"""The published payloads of a transport: one link a slot, under a name made from it.

A link appears, and gives way to another, in one rename: whoever looks sees the older payload, the newer, or none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.shm_header import read_header
from harness.transfer.reference.shm_segments import Segment
from harness.transfer.reference.shm_transport import Transport, is_at, try_lock

_ATTEMPTS = 10_000
"""How often a reader looks again after the payload that it found was replaced under its hands."""


class Slots:
    """What one peer does with them. Thread-safe."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def publish(self, segment: Segment, slot: bytes, size: int) -> None:
        """All at once: a rename takes the old link's place, and the segment behind that is free.

        ConnectionError where the link is another slot's, with the same hash.
        """
        link, prepared = self._link(slot), segment.path.with_suffix(".new")
        with self._transport.guard():
            self._refuse_collision(link, slot)
            prepared.hardlink_to(segment.path)
            try:
                prepared.rename(link)
            except OSError:
                # A second name is what makes a segment published.
                prepared.unlink(missing_ok=True)
                raise
            segment.slot, segment.size = slot, size

    def lease(self, slot: bytes) -> int | None:
        """The segment behind the link, open and locked against its owner; None where there is none. Never waits.

        A segment may be freed, and written anew, between the opening and the lock: then the link does not lead to it any more.
        """
        link = self._link(slot)
        for _ in range(_ATTEMPTS):
            fd = _open(link, os.O_RDONLY)
            if fd is None:
                return None
            if try_lock(fd, fcntl.LOCK_SH) and is_at(fd, link):
                return fd
            os.close(fd)
        raise ConnectionError(f"{link}: replaced {_ATTEMPTS} times while it was opened")

    def free_if(self, slot: bytes, freed: Callable[[int], bool]) -> None:
        """Unlink the payload if `freed` says so of its open segment, which its owner may use again; nothing happens where there is none."""
        link = self._link(slot)
        with self._transport.guard():
            fd = _open(link, os.O_RDWR)
            if fd is None:
                return
            try:
                if freed(fd):
                    link.unlink()
            finally:
                os.close(fd)

    def _link(self, slot: bytes) -> Path:
        return self._transport.held / link_name(slot)

    def _refuse_collision(self, link: Path, slot: bytes) -> None:
        fd = _open(link, os.O_RDONLY)
        if fd is None:
            return
        try:
            other = slot_in(fd)
        finally:
            os.close(fd)
        if other not in (slot, None):
            raise ConnectionError(f"{slot.decode()} has the same hash as {other.decode()}, which is held; use another key")


@lru_cache(maxsize=256)
def link_name(slot: bytes) -> str:
    """A file name for any slot, of any length and with any characters."""
    return hashlib.blake2b(slot, digest_size=16).hexdigest()


def slot_in(fd: int) -> bytes | None:
    """Whose payload a segment holds; None where its header is damaged."""
    try:
        return read_header(fd).slot
    except PayloadError:
        return None


def _open(link: Path, how: int) -> int | None:
    try:
        return os.open(link, how | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
