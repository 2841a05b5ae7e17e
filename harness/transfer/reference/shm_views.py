"""A receiver's side: payloads read where they lie, through mappings that are kept for the next one."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from harness.transfer.reference.pinning import pin
from harness.transfer.reference.shm_header import Header

KEPT_MAPPINGS, KEPT_BYTES = 32, 4 << 30
"""How many mappings are kept, and how much address space they may take together."""


class Mappings:
    """Read-only mappings of segments, the one used longest ago first. Thread-safe.

    A kept mapping keeps its memory, also that of a segment which its sender removed: such ones are dropped when the next is made. With
    `pinned` each is locked for a card to read (see `pinning`).
    """

    def __init__(self, pinned: bool = False) -> None:
        self._lock = threading.Lock()
        self._pinned = pinned
        self._kept: OrderedDict[Hashable, tuple[int, np.ndarray]] = OrderedDict()

    def view(self, fd: int, header: Header) -> memoryview:
        """The payload, read-only, in place. `fd` holds the reader's lock, and is closed when the last view of the payload is gone."""
        with self._lock:
            mapping = self._mapping(fd, header)
        payload = mapping[header.offset : header.offset + header.size]
        # Slices and tensors made from the view keep this array, and with it the lock, alive.
        weakref.finalize(payload, os.close, fd).atexit = False
        return memoryview(payload)

    def let_go(self) -> None:
        """Keep none. What is being read stays mapped."""
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """The same in a forked child, where a thread that is not there may hold the lock."""
        while self._kept:
            os.close(self._kept.popitem()[1][0])

    def _mapping(self, fd: int, header: Header) -> np.ndarray:
        name = self._incarnation(fd, header)
        if name not in self._kept:
            self._drop_removed()
            # Another open file of the same segment: a mapping keeps its own open, and the lock must end before it.
            own = os.open(f"/proc/self/fd/{fd}", (os.O_RDWR if self._pinned else os.O_RDONLY) | os.O_CLOEXEC)
            self._kept[name] = own, self._mapped(own)
        self._kept.move_to_end(name)
        mapping = self._kept[name][1]
        while len(self._kept) > KEPT_MAPPINGS or (len(self._kept) > 1 and sum(len(kept) for _, kept in self._kept.values()) > KEPT_BYTES):
            self._drop(next(iter(self._kept)))
        return mapping

    def _mapped(self, fd: int) -> np.ndarray:
        size = os.fstat(fd).st_size
        if not self._pinned:
            return np.frombuffer(mmap.mmap(fd, size, prot=mmap.PROT_READ), dtype=np.uint8)
        # CUDA locks pages that could be written to; nobody is given a view that can.
        mapping = np.frombuffer(mmap.mmap(fd, size), dtype=np.uint8)
        pin(mapping)
        mapping.flags.writeable = False
        return mapping

    def _drop_removed(self) -> None:
        for name in [name for name, (fd, _) in self._kept.items() if os.fstat(fd).st_nlink == 0]:
            self._drop(name)

    def _incarnation(self, fd: int, header: Header) -> Hashable:
        """What tells a segment from every other, before and after it: its inode, and what its owner drew when it made the file.

        Not its name: a peer that restarts gives its segments the old ones.
        """
        status = os.fstat(fd)
        return status.st_dev, status.st_ino, header.incarnation

    def _drop(self, name: Hashable) -> None:
        fd, _ = self._kept.pop(name)
        os.close(fd)
