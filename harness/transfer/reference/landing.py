"""Where received bytes land: buffers that are reused when a transfer comes to nothing, and copies to a CUDA device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.transfer.protocol import KVPayload

CHUNK = 8 << 20
"""Bytes of pinned memory through which pageable bytes go to a device at a time; there are two such buffers a thread."""


class LandingPool:
    """Host buffers for transfers under way. Those of transfers that came to nothing are used again. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[torch.Tensor] = []
        self._out = 0

    def take(self, size: int) -> torch.Tensor:
        """uint8 of at least `size` bytes, whatever they hold."""
        with self._lock:
            fitting = next((i for i, buffer in enumerate(self._free) if size <= len(buffer) <= 2 * size), None)
            buffer = torch.empty(size, dtype=torch.uint8) if fitting is None else self._free.pop(fitting)
            self._out += len(buffer)
            return buffer

    def give_back(self, buffer: torch.Tensor) -> None:
        """Nobody reads or writes it any more."""
        with self._lock:
            self._out -= len(buffer)
            self._free.append(buffer)
            # One to spare: a serial engine drops one transfer at a time.
            del self._free[:-1]

    def let_go(self, buffer: torch.Tensor) -> None:
        """It was delivered: its memory ends with the payload."""
        with self._lock:
            self._out -= len(buffer)

    def usage(self) -> int:
        """Bytes that transfers hold, under way or not yet consumed."""
        with self._lock:
            return self._out


class Berth:
    """The landing buffer of one transfer, which ends in one of two ways, once. Used under its transfer's own order of events."""

    def __init__(self, pool: LandingPool) -> None:
        self._pool = pool
        self._buffer: torch.Tensor | None = None

    def take(self, size: int) -> torch.Tensor:
        """The buffer, for `size` bytes; a berth takes one."""
        if self._buffer is not None:
            raise RuntimeError("this transfer has its buffer already")
        self._buffer = self._pool.take(size)
        return self._buffer

    def hand_over(self) -> None:
        """The payload is the caller's now."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._pool.let_go(buffer)

    def give_back(self) -> None:
        """The transfer came to nothing, and has ended: nothing writes there any more."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._pool.give_back(buffer)


class DeviceCopy:
    """Copies bytes to CUDA devices. One is used by one thread, and owns that thread's side stream and staging buffers."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._staging: list[tuple[torch.Tensor, torch.cuda.Event]] = []

    @contextmanager
    def beside(self, device: torch.device | None) -> Iterator[None]:
        """Inside, work on the card goes to the side stream; it has ended when the block is left. Nothing happens for a host.

        Beside the default stream, so that a prefetch does not queue behind the request that computes now.
        """
        if device is None or device.type != "cuda":
            yield
            return
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            # Also after an error: what is copied from may be freed next.
            stream.synchronize()

    def to(self, data: torch.Tensor, device: torch.device) -> torch.Tensor:
        """uint8[n] on `device`, all of it there when `beside` is left; call it inside.

        Pinned memory and other devices are read directly, pageable memory is staged.
        """
        landed = torch.empty(len(data), dtype=torch.uint8, device=device)
        if data.is_cuda or data.is_pinned():
            landed.copy_(data, non_blocking=True)
        else:
            self._staged(landed, data)
        return landed

    def _staged(self, landed: torch.Tensor, data: torch.Tensor) -> None:
        """Chunk after chunk through two pinned buffers: while one goes down the bus, the other is filled."""
        if not self._staging:
            self._staging = [(torch.empty(CHUNK, dtype=torch.uint8, pin_memory=True), torch.cuda.Event()) for _ in range(2)]
        for number, first in enumerate(range(0, len(data), CHUNK)):
            buffer, copied = self._staging[number % 2]
            copied.synchronize()
            part = data[first : first + CHUNK]
            buffer[: len(part)].copy_(part)
            landed[first : first + len(part)].copy_(buffer[: len(part)], non_blocking=True)
            copied.record()


def record_use(payload: KVPayload) -> None:
    """Tell the allocator that the current stream uses a payload that another stream allocated, so that it is not reused too soon.

    Once for each piece of memory: a payload's tensors are views of what landed.
    """
    recorded: set[int] = set()
    for tensor in (*payload.keys, *payload.values):
        if tensor is None or not tensor.is_cuda:
            continue
        memory = tensor.untyped_storage().data_ptr()
        if memory not in recorded:
            recorded.add(memory)
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
