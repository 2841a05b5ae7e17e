"""A connector inside one process: a dictionary of payloads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.transfer.buffers import byte_tensor, byte_view
from harness.transfer.protocol import Buffer, Endpoint
from harness.transfer.reference.lab import ConnectorLab

Slot = tuple[str, str, str]
"""(from stage, to stage, key)."""


@dataclass
class Held:
    """A payload, how many readers are not done with it yet, and the names of those who are."""

    data: bytes | torch.Tensor
    readers: int
    done: set[str] = field(default_factory=set)


class MemoryConnector:
    """Holds a private copy of each payload until its readers are done with it, or it is discarded. Thread-safe."""

    endpoint: Endpoint | None = None
    carries_device_memory = True
    address = ""

    def __init__(self, lab: ConnectorLab | None = None) -> None:
        self._lab = lab
        self._lock = threading.Lock()
        self._held: dict[Slot, Held] = {}

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer, readers: int = 1) -> tuple[bool, int, Any]:
        """Copy `data`, then publish it: a reader sees the older payload, or none, until the copy is whole."""
        if readers < 1:
            raise ValueError(f"readers = {readers}; a payload has at least one")
        held = self._copy(data)
        self._publish((from_stage, to_stage, key), Held(held, readers))
        return True, len(held), None

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        """The payload (immutable, or in device memory) and its size. `handle` is not needed: everything lies in this process."""
        with self._lock:
            held = self._held.get((from_stage, to_stage, key))
        return None if held is None else (held.data, len(held.data))

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
        with self._lock:
            held = self._held.get((from_stage, to_stage, key))
            if held is None or reader in held.done:
                return
            held.readers -= 1
            if reader:
                held.done.add(reader)
            if not held.readers:
                del self._held[from_stage, to_stage, key]

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        with self._lock:
            self._held.pop((from_stage, to_stage, key), None)

    def holds(self, from_stage: str, to_stage: str, key: str) -> bool:
        with self._lock:
            return (from_stage, to_stage, key) in self._held

    def usage(self) -> dict[str, int]:
        """`segments` held and their `bytes`."""
        with self._lock:
            return {"segments": len(self._held), "bytes": sum(len(held.data) for held in self._held.values())}

    def close(self) -> None:
        """Let go of everything held."""
        with self._lock:
            self._held.clear()

    def _copy(self, data: Buffer) -> bytes | torch.Tensor:
        """With a lab, its `store` lies between the halves. Device memory is copied on its card, and there on return."""
        if isinstance(data, torch.Tensor) and data.is_cuda:
            held = byte_tensor(data).clone()
            torch.cuda.current_stream(data.device).synchronize()
            return held
        view = byte_view(data)
        if self._lab is None:
            return bytes(view)
        first = bytes(view[: len(view) // 2])
        self._lab.enter("store")
        return first + bytes(view[len(view) // 2 :])

    def _publish(self, slot: Slot, held: Held) -> None:
        with self._lock:
            self._held[slot] = held
