"""The bytes of a payload: a checked frame around named tensors.

    magic (8) | crc32 of all that follows (4) | header length (4) | total length (8) | header, JSON | tensors, each at a multiple of ALIGN

Nothing in it is executed when it is read: the header is JSON and the tensors are raw bytes in the machine's (little-endian) order.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer
from harness.transfer.reference.errors import PayloadError

MAGIC = b"ASSAYKV1"
ALIGN = 64
"""Tensors start at multiples of this many bytes, so that a view of any dtype is aligned."""
HEADER_LIMIT = 1 << 20
"""Bytes of header that are read at most: a thousand layers fit four times over."""

_CHECKED_FROM = struct.calcsize("<8sI")
_PREFIX = struct.Struct("<8sIIQ")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class WireTensor:
    """A tensor under way. `order` is its place among the others; its name says what it is and orders nothing."""

    name: str
    order: int
    tensor: torch.Tensor


def _aligned(offset: int) -> int:
    return -(-offset // ALIGN) * ALIGN


class Wire:
    """Packs tensors and metadata into bytes, and refuses bytes that are not what was packed."""

    def pack(self, metadata: Mapping[str, Any], tensors: Sequence[WireTensor]) -> bytearray:
        """One frame. `metadata` is what JSON can hold; tensors are of a floating dtype, on any device. ValueError for other dtypes."""
        described, size = [], 0
        for item in tensors:
            described.append(self._describe(item, size))
            size = _aligned(size + item.tensor.nbytes)
        header = json.dumps({"metadata": dict(metadata), "tensors": described}).encode()
        start = _aligned(_PREFIX.size + len(header))
        frame = bytearray(start + size)
        _PREFIX.pack_into(frame, 0, MAGIC, 0, len(header), len(frame))
        frame[_PREFIX.size : _PREFIX.size + len(header)] = header
        body = torch.frombuffer(frame, dtype=torch.uint8)[start:]
        for entry, item in zip(described, tensors, strict=True):
            place = body[entry["offset"] : entry["offset"] + item.tensor.nbytes]
            place.copy_(item.tensor.contiguous().view(-1).view(torch.uint8))
        struct.pack_into("<I", frame, len(MAGIC), self._checksum(memoryview(frame)))
        return frame

    def unpack(self, data: Buffer) -> tuple[dict[str, Any], list[WireTensor]]:
        """(metadata, tensors) of a frame. The tensors are views of one private copy: writing to them changes nobody else's payload.

        PayloadError says what is wrong with bytes that are no frame, cut short, or changed.
        """
        view = byte_view(data)
        header, start = self._open(view)
        body = torch.frombuffer(bytearray(view[start:]), dtype=torch.uint8)
        try:
            return header["metadata"], [self._tensor(entry, body) for entry in header["tensors"]]
        except (KeyError, TypeError, ValueError) as error:
            raise PayloadError(f"payload header does not describe its tensors: {error!r}") from error

    def _open(self, view: memoryview) -> tuple[dict[str, Any], int]:
        """The header, and where the tensors start."""
        if len(view) < _PREFIX.size:
            raise PayloadError(f"payload of {len(view)} bytes is shorter than its {_PREFIX.size} byte prefix")
        magic, checksum, header_size, total = _PREFIX.unpack_from(view)
        if magic != MAGIC:
            raise PayloadError(f"payload starts with {magic!r}, not {MAGIC!r}")
        self._check_length(len(view), total)
        self._check_sum(checksum, view)
        start = _aligned(_PREFIX.size + header_size)
        if header_size > HEADER_LIMIT or start > total:
            raise PayloadError(f"payload header of {header_size} bytes, more than {HEADER_LIMIT} or than the payload holds")
        try:
            return json.loads(bytes(view[_PREFIX.size : _PREFIX.size + header_size])), start
        except ValueError as error:
            raise PayloadError(f"payload header is not JSON: {error}") from error

    def _check_length(self, got: int, total: int) -> None:
        if got != total:
            raise PayloadError(f"payload of {got} bytes, sent as {total}")

    def _check_sum(self, sent: int, view: memoryview) -> None:
        got = self._checksum(view)
        if got != sent:
            raise PayloadError(f"payload checksum {got:#010x}, sent as {sent:#010x}: bytes changed on the way")

    def _checksum(self, view: memoryview) -> int:
        """CRC-32 of all that follows the checksum itself."""
        return zlib.crc32(view[_CHECKED_FROM:])

    def _describe(self, item: WireTensor, offset: int) -> dict[str, Any]:
        tensor = item.tensor
        if tensor.dtype not in _NAMES:
            raise ValueError(f"{item.name}: KV of {tensor.dtype} cannot be sent; {sorted(_DTYPES)} can")
        return {"name": item.name, "order": item.order, "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "offset": offset}

    def _tensor(self, entry: Mapping[str, Any], body: torch.Tensor) -> WireTensor:
        dtype, shape, offset = _DTYPES[entry["dtype"]], entry["shape"], entry["offset"]
        end = offset + math.prod(shape) * dtype.itemsize
        if min(shape, default=1) < 0 or not 0 <= offset <= end <= len(body):
            raise ValueError(f"{entry['name']} lies at bytes {offset} to {end} of {len(body)}")
        return WireTensor(entry["name"], entry["order"], body[offset:end].view(dtype).view(shape))
