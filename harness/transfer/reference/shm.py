"""A connector in shared memory: one copy into a pooled segment, read in place by any process of this machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer, Endpoint
from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.lab import ConnectorLab
from harness.transfer.reference.shm_header import (
    READERS_LIMIT,
    Header,
    payload_checksum,
    payload_offset,
    read_header,
    read_readers,
    slot_text,
    write_readers,
)
from harness.transfer.reference.shm_segments import Segment, SegmentPool
from harness.transfer.reference.shm_transport import ROOT, Transport, is_at, try_lock
from harness.transfer.reference.shm_views import Mappings

DEFAULT_LIMIT, LARGEST_LIMIT = 4 << 30, 1 << 40
"""Bytes of the largest payload, unless said otherwise, and the most that may be said."""
_ATTEMPTS = 10_000
"""How often a get looks again after the payload that it found was replaced under its hands."""


class ShmConnector:
    """One peer of a transport (see `shm_transport`): what it puts lies in its own segments. Thread-safe.

    `checksum`: make one over every payload put here, and verify what others made. `limit`: bytes of the largest payload. After `close`
    nothing is found and a put is a ConnectionError. A forked child has no share in it: it joins by address, or raises RuntimeError.
    """

    endpoint: Endpoint | None = None

    def __init__(
        self,
        address: str | None = None,
        *,
        checksum: bool = True,
        limit: int = DEFAULT_LIMIT,
        lab: ConnectorLab | None = None,
        root: Path = ROOT,
    ) -> None:
        if not 0 < limit <= LARGEST_LIMIT:
            raise ValueError(f"limit = {limit}; give 1 to {LARGEST_LIMIT} bytes")
        self._checksum, self._limit, self._lab = checksum, limit, lab
        self._pid = os.getpid()
        self._transport = Transport(address, root)
        self._pool = SegmentPool(self._transport.home)
        self._mappings = Mappings()
        self._closed = False
        self.address = str(self._transport.path)
        _LIVE.add(self)

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer, readers: int = 1) -> tuple[bool, int, Any]:
        """Copy `data` into a segment of its own, then publish that: until then a reader sees the older payload, or none."""
        if not 1 <= readers <= READERS_LIMIT:
            raise ValueError(f"readers = {readers}; a payload has 1 to {READERS_LIMIT}")
        slot, view = slot_text(from_stage, to_stage, key), byte_view(data)
        if len(view) > self._limit:
            raise ValueError(f"payload of {len(view)} bytes; option limit = {self._limit}")
        if not self._open():
            raise ConnectionError(f"connector {self.address} is closed")
        segment = self._pool.take(payload_offset(slot) + len(view))
        try:
            self._fill(segment, slot, view, readers)
            segment.unlock()
            self._publish(segment, slot, len(view))
        finally:
            self._pool.give_back(segment)
        return True, len(view), None

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[memoryview, int] | None:
        """The payload, read-only and in place, and its size. Its segment is not used again before the last view of it is gone.

        PayloadError where header or bytes changed. `handle` is not needed: a transport finds payloads by key.
        """
        if not self._open():
            return None
        slot = slot_text(from_stage, to_stage, key)
        fd = self._lease(self._link(slot))
        if fd is None:
            return None
        try:
            header = read_header(fd)
            view = self._mappings.view(fd, header) if header.slot == slot else None
        except BaseException:
            os.close(fd)
            raise
        if view is None:  # another slot's, with the same hash
            os.close(fd)
            return None
        if self._checksum:
            header.check(view)
        return view, header.size

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
        """PayloadError where the header, and so the count of readers, is damaged: only a discard frees that."""
        slot = slot_text(from_stage, to_stage, key)
        self._unlink_if(slot, lambda fd: read_header(fd).slot == slot and self._is_last(fd))

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        slot = slot_text(from_stage, to_stage, key)
        self._unlink_if(slot, lambda fd: _slot_in(fd) in (slot, None))

    def holds(self, from_stage: str, to_stage: str, key: str) -> bool:
        slot = slot_text(from_stage, to_stage, key)
        return any(segment.slot == slot for segment in self._held())

    def usage(self) -> dict[str, int]:
        """`segments` whose payloads were put here and are held, whoever may free them, and the payloads' `bytes`."""
        held = self._held()
        return {"segments": len(held), "bytes": sum(segment.size for segment in held)}

    def sweep(self) -> None:
        """Remove what killed processes left, here and in other transports."""
        if self._open():
            self._transport.sweep()

    def close(self) -> None:
        """Leave the transport; the last peer removes it. What a reader still holds stays readable."""
        if not self._open():
            return
        self._closed = True
        self._pool.close()
        self._transport.leave()
        self._mappings.let_go()

    def abandon(self) -> None:
        """In a forked child: drop the inherited files, so that the parent's locks end with the parent."""
        self._transport.abandon()
        self._pool.abandon()
        self._mappings.abandon()

    def _open(self) -> bool:
        if self._pid != os.getpid():
            raise RuntimeError(f"connector of process {self._pid} used in its child {os.getpid()}; join {self.address} with a new one")
        return not self._closed

    def _held(self) -> list[Segment]:
        if not self._open():
            return []
        with self._transport.guard():
            return self._pool.published()

    def _link(self, slot: bytes) -> Path:
        return self._transport.held / link_name(slot)

    def _fill(self, segment: Segment, slot: bytes, view: memoryview, readers: int) -> None:
        """Payload, then header. With a lab, its `store` lies between the halves of the copy."""
        start, half = payload_offset(slot), len(view) // 2 if self._lab else len(view)
        segment.write(start, view[:half])
        if self._lab:
            self._lab.enter("store")
            segment.write(start + half, view[half:])
        segment.uses += 1
        checksum = payload_checksum(view) if self._checksum else None
        header = Header(slot, len(view), checksum, self._transport.peer, segment.number, segment.incarnation, segment.uses)
        segment.write(0, header.pack(readers))
        if self._lab and self._lab.takes("damage") and len(view):
            segment.flip_bit(start + half)

    def _publish(self, segment: Segment, slot: bytes, size: int) -> None:
        """All at once: a rename takes the old link's place, and the segment behind that is free."""
        link, prepared = self._link(slot), segment.path.with_suffix(".new")
        with self._transport.guard():
            self._refuse_collision(link, slot)
            prepared.hardlink_to(segment.path)
            prepared.rename(link)
            segment.slot, segment.size = slot, size

    def _refuse_collision(self, link: Path, slot: bytes) -> None:
        fd = _open_link(link, os.O_RDONLY)
        if fd is None:
            return
        try:
            other = _slot_in(fd)
        finally:
            os.close(fd)
        if other not in (slot, None):
            raise ConnectionError(f"{slot.decode()} has the same hash as {other.decode()}, which is held; use another key")

    def _lease(self, link: Path) -> int | None:
        """The segment behind the link, open and locked against its owner; None where there is none. Never waits.

        A segment may be freed, and written anew, between the opening and the lock: then the link does not lead to it any more.
        """
        for _ in range(_ATTEMPTS):
            fd = _open_link(link, os.O_RDONLY)
            if fd is None:
                return None
            if try_lock(fd, fcntl.LOCK_SH) and is_at(fd, link):
                return fd
            os.close(fd)
        raise ConnectionError(f"{link}: replaced {_ATTEMPTS} times while it was opened")

    def _unlink_if(self, slot: bytes, freed: Callable[[int], bool]) -> None:
        """Unlink the slot's payload if `freed` says so of its open segment; its owner may use that again."""
        if not self._open():
            return
        link = self._link(slot)
        with self._transport.guard():
            fd = _open_link(link, os.O_RDWR)
            if fd is None:
                return
            try:
                if freed(fd):
                    link.unlink()
            finally:
                os.close(fd)

    def _is_last(self, fd: int) -> bool:
        """Count one reader down."""
        left = read_readers(fd) - 1
        if left:
            write_readers(fd, left)
        return not left


def link_name(slot: bytes) -> str:
    """A file name for any slot, of any length and with any characters."""
    return hashlib.blake2b(slot, digest_size=16).hexdigest()


def _open_link(link: Path, how: int) -> int | None:
    try:
        return os.open(link, how | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _slot_in(fd: int) -> bytes | None:
    """Whose payload a segment holds; None where its header is damaged."""
    try:
        return read_header(fd).slot
    except PayloadError:
        return None


_LIVE: weakref.WeakSet[ShmConnector] = weakref.WeakSet()


def _abandon_all() -> None:
    for connector in list(_LIVE):
        if not connector._closed:
            connector.abandon()


os.register_at_fork(after_in_child=_abandon_all)
