"""The frames of the tcp connector: what goes over its sockets, to the byte.

    magic (4) | version, op, status, flags (1 each) | key (4) | payload (8) | boot (8) | key sum (8) | checksum (8) | seal (8)
    key | payload

Little-endian. `key` and `payload` are lengths in bytes; `boot` names one life of the listener; `checksum` is xxh3_64 of the payload, as it
was when it was put, `key sum` that of the key; `seal` is xxh3_64 of all that stands before it, so that no length is believed that changed
on the way. A key is three texts in UTF-8, each behind its length in two bytes; a done carries its reader's name as payload. Nothing
received is ever executed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import xxhash

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer
from harness.transfer.reference.errors import PayloadError, ProtocolError

MAGIC = b"AKVT"
VERSION = 1
TEXT_LIMIT = 4096
"""Bytes of one text of a key."""
KEY_LIMIT = 3 * (2 + TEXT_LIMIT)

_HEADER = struct.Struct("<4sBBBBIQQQQQ")
HEADER_SIZE = _HEADER.size
_SEALED = HEADER_SIZE - 8
_CHECKED = 1
"""The flag of a frame whose payload has a checksum."""

Slot = tuple[str, str, str]
"""(from stage, to stage, key)."""


class Op(IntEnum):
    """What a frame asks for, or answers."""

    HELLO = 1
    GET = 2
    DONE = 3
    DISCARD = 4


class Status(IntEnum):
    """How a request ended. A request itself says OK."""

    OK = 0
    ABSENT = 1
    """Nothing is published under the key."""
    BUSY = 2
    """The listener serves as many connections as it may."""
    REFUSED = 3
    """The request made no sense; the payload says why, as text."""


@dataclass(frozen=True)
class Frame:
    """One message. `checksum` None: the payload is carried unchecked."""

    op: Op
    boot: int
    status: Status = Status.OK
    slot: Slot | None = None
    payload: Buffer = b""
    checksum: int | None = None


def checksum_of(data: Buffer) -> int:
    """xxh3_64 of the bytes."""
    return xxhash.xxh3_64_intdigest(byte_view(data))


def check_payload(data: Buffer, checksum: int, where: str) -> None:
    """PayloadError, which begins with `where`, unless the bytes have the checksum."""
    got = checksum_of(data)
    if got != checksum:
        raise PayloadError(f"{where}: payload checksum {got:#018x}, put as {checksum:#018x}: bytes changed since")


def encode_slot(slot: Slot) -> bytes:
    """ValueError for what is no text, or longer than TEXT_LIMIT bytes."""
    texts = [encode_text(name, text) for name, text in zip(("from_stage", "to_stage", "key"), slot, strict=True)]
    return b"".join(struct.pack("<H", len(raw)) + raw for raw in texts)


def encode_text(name: str, text: str) -> bytes:
    """ValueError, which says `name`, for what is no text, or longer than TEXT_LIMIT bytes."""
    if not isinstance(text, str):
        raise ValueError(f"{name} = {text!r}: give a text")
    raw = text.encode()
    if len(raw) > TEXT_LIMIT:
        raise ValueError(f"{name} has {len(raw)} bytes, more than {TEXT_LIMIT}")
    return raw


def decode_slot(raw: bytes) -> Slot:
    """ValueError where it is not three texts, to the last byte."""
    texts, at = [], 0
    for _ in range(3):
        (size,) = struct.unpack_from("<H", raw, at) if at + 2 <= len(raw) else (TEXT_LIMIT + 1,)
        if size > TEXT_LIMIT or at + 2 + size > len(raw):
            raise ValueError(f"a key of {len(raw)} bytes that does not hold three texts")
        texts.append(raw[at + 2 : at + 2 + size].decode())
        at += 2 + size
    if at != len(raw):
        raise ValueError(f"{len(raw) - at} bytes behind the key's three texts")
    return (texts[0], texts[1], texts[2])


def head_of(frame: Frame) -> bytes:
    """All of a frame but its payload."""
    key = b"" if frame.slot is None else encode_slot(frame.slot)
    size = len(byte_view(frame.payload))
    flags, checksum = (0, 0) if frame.checksum is None else (_CHECKED, frame.checksum)
    head = bytearray(_HEADER.pack(MAGIC, VERSION, frame.op, frame.status, flags, len(key), size, frame.boot, checksum_of(key), checksum, 0))
    struct.pack_into("<Q", head, _SEALED, checksum_of(head[:_SEALED]))
    return bytes(head) + key


@dataclass(frozen=True)
class Head:
    """What a frame's header says of what follows it: lengths in bytes, within their bounds, and the checksums."""

    op: int
    status: int
    key_size: int
    size: int
    boot: int
    key_sum: int
    checksum: int | None


def decode_head(raw: bytes | bytearray, what: str, limit: int) -> Head:
    """The header of `what` was expected. ProtocolError for what is none, changed on its way, or announces a payload over `limit` bytes."""
    magic, version, op, status, flags, key_size, size, boot, key_sum, checksum, seal = _HEADER.unpack(raw)
    if magic != MAGIC:
        raise ProtocolError(f"expected {what}, got bytes that begin with {bytes(raw[:8])!r}, not with {MAGIC!r}")
    if version != VERSION:
        raise ProtocolError(f"expected {what} in version {VERSION} of the protocol, got version {version}")
    check_seal(raw, seal, what)
    if key_size > KEY_LIMIT:
        raise ProtocolError(f"expected {what}, got one that announces a key of {key_size} bytes; the limit is {KEY_LIMIT}")
    if size > limit:
        raise ProtocolError(f"expected {what}, got one that announces {size} bytes of payload; the limit is {limit} (option limit)")
    return Head(op, status, key_size, size, boot, key_sum, checksum if flags & _CHECKED else None)


def check_seal(raw: bytes | bytearray, seal: int, what: str) -> None:
    """ProtocolError unless the header is the one that was sealed."""
    if seal != checksum_of(raw[:_SEALED]):
        raise ProtocolError(f"expected {what}, got a header that changed on its way: its seal does not match")


def decode_frame(head: Head, key: bytes | bytearray, what: str) -> Frame:
    """The frame without its payload yet. ProtocolError for a key that changed, or an op, a status or a key that there is none of."""
    if checksum_of(key) != head.key_sum:
        raise ProtocolError(f"expected {what}, got a key that changed on its way")
    try:
        return Frame(Op(head.op), head.boot, Status(head.status), decode_slot(bytes(key)) if key else None, checksum=head.checksum)
    except ValueError as error:
        raise ProtocolError(f"expected {what}, got a frame with {error}") from error
