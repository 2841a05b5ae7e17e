"""A connector inside one process: a dictionary of bytes."""

from __future__ import annotations

import threading
from typing import Any

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer

Slot = tuple[str, str, str]
"""(from stage, to stage, key)."""


class MemoryConnector:
    """Holds a private copy of each payload until it is discarded, for any number of readers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Slot, bytes] = {}

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer) -> tuple[bool, int, Any]:
        """Copy `data`, then publish it: a reader sees the older payload, or none, until the copy is whole."""
        held = self._copy(data)
        self._publish((from_stage, to_stage, key), held)
        return True, len(held), None

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[bytes, int] | None:
        """The payload (immutable) and its size. `handle` is not needed: everything lies in this process."""
        with self._lock:
            held = self._held.get((from_stage, to_stage, key))
        return None if held is None else (held, len(held))

    def discard(self, from_stage: str, to_stage: str, key: str) -> None:
        with self._lock:
            self._held.pop((from_stage, to_stage, key), None)

    def usage(self) -> dict[str, int]:
        """`segments` held and their `bytes`."""
        with self._lock:
            return {"segments": len(self._held), "bytes": sum(map(len, self._held.values()))}

    def close(self) -> None:
        """Let go of everything held."""
        with self._lock:
            self._held.clear()

    def _copy(self, data: Buffer) -> bytes:
        return bytes(byte_view(data))

    def _publish(self, slot: Slot, held: bytes) -> None:
        with self._lock:
            self._held[slot] = held
