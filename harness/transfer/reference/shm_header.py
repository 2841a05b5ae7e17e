"""The header of a shared-memory segment: what lies in it, for whom, and whose segment it is.

    fixed part | readers left (4), names of those done, their checksum (8) | slot, JSON | payload, at a multiple of PAGE

The header's own checksum covers the fixed part and the slot. What is said of the readers changes after publication, by itself, so it has
one of its own.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from functools import lru_cache

import xxhash

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer
from harness.transfer.reference.errors import PayloadError

MAGIC = b"ASSAYSHM"
VERSION = 1
PAGE = 4096
"""Bytes of a memory page: payloads start at a multiple of them."""
SLOT_LIMIT = 64 << 10
"""Bytes that the stages and the key may take, written as JSON."""

_FIXED = struct.Struct("<8sIIQQQII16sI")
_SUM = struct.Struct("<Q")
_CHECKED = 1
"""The one flag: the payload carries a checksum."""
READERS_LIMIT = 64
"""Readers of one payload: as many names find room in a header."""
_NAME = 8
"""Bytes of a reader's name, which is a hash of what it calls itself; zeros for one that has none."""
_READERS = struct.Struct(f"<I{READERS_LIMIT * _NAME}sQ")


@lru_cache(maxsize=256)
def slot_text(from_stage: str, to_stage: str, key: str) -> bytes:
    """The slot as the header holds it. ValueError where it is longer than SLOT_LIMIT."""
    text = json.dumps([from_stage, to_stage, key]).encode()
    if len(text) > SLOT_LIMIT:
        raise ValueError(f"stages and key of {len(text)} bytes; a header holds {SLOT_LIMIT}")
    return text


def payload_checksum(view: memoryview) -> int:
    """XXH3 of 64 bits."""
    return xxhash.xxh3_64_intdigest(view)


@dataclass(frozen=True)
class Header:
    """`size` counts payload bytes; `checksum` None: none was made.

    `peer` and `number` name the segment; `incarnation`, drawn at random when its file was made, tells it from an earlier one of that name;
    `generation` counts its uses.
    """

    slot: bytes
    size: int
    checksum: int | None
    peer: int
    number: int
    incarnation: bytes
    generation: int

    @property
    def offset(self) -> int:
        """Where the payload starts."""
        return payload_offset(self.slot)

    def pack(self, readers: int) -> bytes:
        """As it stands at the start of a segment."""
        return self._fixed() + _SUM.pack(self._sum()) + Readers(readers).pack() + self.slot

    def check(self, data: Buffer) -> None:
        """PayloadError unless the bytes are those that the checksum was made of."""
        if self.checksum is None:
            return
        got = payload_checksum(byte_view(data))
        if got != self.checksum:
            raise PayloadError(f"{self} has checksum {got:#018x}, put as {self.checksum:#018x}: its bytes changed in shared memory")

    def _fixed(self) -> bytes:
        flags = 0 if self.checksum is None else _CHECKED
        return _FIXED.pack(
            MAGIC,
            VERSION,
            flags,
            self.size,
            self.checksum or 0,
            self.generation,
            self.peer,
            self.number,
            self.incarnation,
            len(self.slot),
        )

    def _sum(self) -> int:
        return xxhash.xxh3_64_intdigest(self._fixed() + self.slot)

    def __str__(self) -> str:
        return f"payload of {self.size} bytes in segment {self.peer}/{self.number}"


@dataclass(frozen=True)
class Readers:
    """How many readers are not done with a payload, and the names of those that are and have one."""

    left: int
    done: tuple[bytes, ...] = ()

    def without(self, reader: str) -> Readers:
        """Once that reader has said that it is done; one that has a name counts once."""
        if not reader:
            return Readers(self.left - 1, self.done)
        name = xxhash.xxh3_64_digest(reader.encode())
        return self if name in self.done else Readers(self.left - 1, (*self.done, name))

    def pack(self) -> bytes:
        names = b"".join(self.done).ljust(READERS_LIMIT * _NAME, b"\0")
        check = xxhash.xxh3_64_intdigest(struct.pack("<I", self.left) + names)
        return _READERS.pack(self.left, names, check)


_SLOT_AT = _FIXED.size + _SUM.size + _READERS.size
_READERS_AT = _FIXED.size + _SUM.size


def payload_offset(slot: bytes) -> int:
    """Where the payload of a slot starts in its segment."""
    return -(-(_SLOT_AT + len(slot)) // PAGE) * PAGE


def read_header(fd: int) -> Header:
    """Of the segment open as `fd`. PayloadError says which field does not fit; nothing is taken from one that is damaged."""
    start = os.pread(fd, PAGE, 0)
    if len(start) < _SLOT_AT:
        raise PayloadError(f"segment of {len(start)} bytes is shorter than its {_SLOT_AT} byte header")
    magic, version, flags, size, checksum, generation, peer, number, incarnation, slot_size = _FIXED.unpack_from(start)
    if magic != MAGIC:
        raise PayloadError(f"segment starts with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise PayloadError(f"segment of version {version}; this is version {VERSION}")
    if flags & ~_CHECKED:
        raise PayloadError(f"segment header with unknown flags {flags:#x}")
    if slot_size > SLOT_LIMIT:
        raise PayloadError(f"segment header says {slot_size} bytes of slot; at most {SLOT_LIMIT} are read")
    end = _SLOT_AT + slot_size
    slot = start[_SLOT_AT:end] if end <= len(start) else os.pread(fd, slot_size, _SLOT_AT)
    header = Header(slot, size, checksum if flags & _CHECKED else None, peer, number, incarnation, generation)
    (header_sum,) = _SUM.unpack_from(start, _FIXED.size)
    if len(slot) != slot_size or header_sum != header._sum():
        raise PayloadError(f"{header}: its header changed in shared memory")
    held = os.fstat(fd).st_size
    if header.offset + size > held:
        raise PayloadError(f"{header}: its segment holds {held} bytes, {header.offset} of them before the payload")
    return header


def read_readers(fd: int) -> Readers:
    """Who is not done yet. PayloadError where that is damaged."""
    content = os.pread(fd, _READERS.size, _READERS_AT)
    left, names, _ = _READERS.unpack(content)
    done = [names[at : at + _NAME] for at in range(0, len(names), _NAME)] if any(names) else []
    readers = Readers(left, tuple(name for name in done if any(name)))
    if readers.pack() != content or left < 1:
        raise PayloadError(f"segment header counts {left} readers, and its check does not fit: it changed in shared memory")
    return readers


def write_readers(fd: int, readers: Readers) -> None:
    """Under the transport's guard only."""
    os.pwrite(fd, readers.pack(), _READERS_AT)
