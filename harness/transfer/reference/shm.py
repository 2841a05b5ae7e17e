"""A connector in shared memory: one copy into a pooled segment, read in place by any process of this machine."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer, Endpoint
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
from harness.transfer.reference.shm_slots import Slots, slot_in
from harness.transfer.reference.shm_transport import ROOT, Transport
from harness.transfer.reference.shm_views import Mappings

DEFAULT_LIMIT, LARGEST_LIMIT = 4 << 30, 1 << 40
"""Bytes of the largest payload, unless said otherwise, and the most that may be said."""


class ShmConnector:
    """One peer of a transport (see `shm_transport`): what it puts lies in its own segments. Thread-safe.

    `checksum`: make one over every payload put here, and verify what others made. `limit`: bytes of the largest payload. `pinned`: lock
    what is got for a card to read. After `close` nothing is found and a put is a ConnectionError. A forked child has no share in it: it
    joins by address, or raises RuntimeError.
    """

    endpoint: Endpoint | None = None
    carries_device_memory = False

    def __init__(
        self,
        address: str | None = None,
        *,
        checksum: bool = True,
        limit: int = DEFAULT_LIMIT,
        pinned: bool = False,
        lab: ConnectorLab | None = None,
        root: Path = ROOT,
    ) -> None:
        if not 0 < limit <= LARGEST_LIMIT:
            raise ValueError(f"limit = {limit}; give 1 to {LARGEST_LIMIT} bytes")
        self._checksum, self._limit, self._lab = checksum, limit, lab
        self._pid = os.getpid()
        self._transport = Transport(address, root)
        self._slots, self._pool = Slots(self._transport), SegmentPool(self._transport.home)
        self._mappings = Mappings(pinned)
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
            self._slots.publish(segment, slot, len(view))
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
        fd = self._slots.lease(slot)
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
        if self._open():
            self._slots.free_if(slot, lambda fd: read_header(fd).slot == slot and self._is_last(fd, reader))

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        """One with a damaged header too."""
        slot = slot_text(from_stage, to_stage, key)
        if self._open():
            self._slots.free_if(slot, lambda fd: slot_in(fd) in (slot, None))

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
        try:
            self._transport.leave()
        finally:
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

    def _is_last(self, fd: int, reader: str) -> bool:
        """Count one reader down."""
        readers = read_readers(fd).without(reader)
        if readers.left:
            write_readers(fd, readers)
        return not readers.left


_LIVE: weakref.WeakSet[ShmConnector] = weakref.WeakSet()


def _abandon_all() -> None:
    for connector in list(_LIVE):
        if not connector._closed:
            connector.abandon()


os.register_at_fork(after_in_child=_abandon_all)
