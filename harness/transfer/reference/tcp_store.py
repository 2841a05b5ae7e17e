"""What a tcp connector holds of its own puts: a private copy of each payload, published whole, counted by its readers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer
from harness.transfer.reference.lab import ConnectorLab
from harness.transfer.reference.tcp_frames import Slot, checksum_of


@dataclass
class Held:
    """A payload that nobody writes to any more, its checksum (None: unchecked), how many readers are not done with it, and who is."""

    data: memoryview
    checksum: int | None
    readers: int
    done: set[bytes] = field(default_factory=set)


def forget(_: Slot, __: Held) -> None:
    """What there is to do about a payload that is let go: nothing."""


class Store:
    """Thread-safe. `lab`, where there is one, is entered in the middle of each copy, as `store`, and may `damage` what was copied.

    `released` is called for each payload that nobody is given any more: the last reader is done, or it was discarded, replaced or closed.
    """

    def __init__(self, checksum: bool, lab: ConnectorLab | None = None, released: Callable[[Slot, Held], None] = forget) -> None:
        self._checksum, self._lab, self._released = checksum, lab, released
        self._lock = threading.Lock()
        self._held: dict[Slot, Held] = {}
        self._closed = False

    def put(self, slot: Slot, data: Buffer, readers: int, limit: int) -> int:
        """Copy, then publish in the place of what was there; returns the bytes. ValueError over `limit`, ConnectionError after `close`."""
        view = byte_view(data)
        if len(view) > limit:
            raise ValueError(f"a payload of {len(view)} bytes, the limit is {limit} (option limit)")
        copy = self._copy(view)
        checksum = checksum_of(copy) if self._checksum else None
        if self._lab is not None and self._lab.takes("damage") and len(copy):
            copy[len(copy) // 2] ^= 1
        self._publish(slot, Held(copy.toreadonly(), checksum, readers))
        return len(copy)

    def find(self, slot: Slot) -> Held | None:
        """The payload; it stays whole for whoever has found it, whatever happens to the slot."""
        with self._lock:
            return self._held.get(slot)

    def done(self, slot: Slot, reader: bytes) -> None:
        """One reader is done; the last one frees the payload. One that has a name counts once."""
        with self._lock:
            held = self._held.get(slot)
            if held is None or reader in held.done:
                return
            if reader:
                held.done.add(reader)
            held.readers -= 1
            if held.readers:
                return
            del self._held[slot]
        self._released(slot, held)

    def discard(self, slot: Slot) -> None:
        with self._lock:
            held = self._held.pop(slot, None)
        if held is not None:
            self._released(slot, held)

    def usage(self) -> dict[str, int]:
        """`segments` held and their `bytes`."""
        with self._lock:
            return {"segments": len(self._held), "bytes": sum(len(held.data) for held in self._held.values())}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            left, self._held = self._held, {}
        for slot, held in left.items():
            self._released(slot, held)

    def _copy(self, view: memoryview) -> memoryview:
        # Not a bytearray: that would be zeroed first, and these are up to gigabytes.
        copy = memoryview(np.empty(len(view), np.uint8))
        half = len(view) // 2
        copy[:half] = view[:half]
        if self._lab is not None:
            self._lab.enter("store")
        copy[half:] = view[half:]
        return copy

    def _publish(self, slot: Slot, held: Held) -> None:
        with self._lock:
            if self._closed:
                raise ConnectionError("the connector is closed; nothing can be put any more")
            before, self._held[slot] = self._held.get(slot), held
        if before is not None:
            self._released(slot, before)
