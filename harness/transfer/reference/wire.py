"""The bytes of a payload: a checked frame around named tensors.

    magic (8) | checksum of all that follows it (8) | flags (4) | header length (4) | total length (8) | header, JSON | tensors, each at a
    multiple of ALIGN

Nothing in it is executed when it is read: the header is JSON and the tensors are raw bytes in the machine's (little-endian) order. A frame
lies in host memory, or whole on a CUDA device, for a receiver on the same card.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.transfer.buffers import byte_tensor
from harness.transfer.protocol import Buffer
from harness.transfer.reference.checksum import checksum
from harness.transfer.reference.errors import PayloadError

MAGIC = b"ASSAYKV2"
ALIGN = 64
"""Tensors start at multiples of this many bytes, so that a view of any dtype is aligned."""
HEADER_LIMIT = 1 << 20
"""Bytes of header that are read at most: a thousand layers fit four times over."""
CHECKED = 1
"""The flag of a frame that carries a checksum."""

_CHECKED_FROM = struct.calcsize("<8sQ")
_PREFIX = struct.Struct("<8sQIIQ")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Land = Callable[[torch.Tensor], torch.Tensor]
"""Takes the tensors' bytes out of what a connector gave, uint8[n], to where they are to be; returns them there, at the same offsets."""


@dataclass(frozen=True)
class WireTensor:
    """A tensor under way. `order` is its place among the others; its name says what it is and orders nothing."""

    name: str
    order: int
    tensor: torch.Tensor


def _aligned(offset: int) -> int:
    return -(-offset // ALIGN) * ALIGN


class Wire:
    """Packs tensors and metadata into bytes, and refuses bytes that are not what was packed. `checked`: frames carry and owe a checksum."""

    def __init__(self, checked: bool = True) -> None:
        self._checked = checked

    def pack(self, metadata: Mapping[str, Any], tensors: Sequence[WireTensor], device: torch.device | None = None) -> torch.Tensor:
        """One frame, uint8[n], on `device`, or in host memory for None. `metadata` is what JSON can hold.

        Tensors are of a floating dtype, on any device. ValueError for other dtypes, and for a header beyond HEADER_LIMIT.
        """
        described, size = [], 0
        for item in tensors:
            described.append(self._describe(item, size))
            size = _aligned(size + item.tensor.nbytes)
        header = json.dumps({"metadata": dict(metadata), "tensors": described}).encode()
        if len(header) > HEADER_LIMIT:
            raise ValueError(f"a header of {len(header)} bytes for {len(tensors)} tensors; {HEADER_LIMIT} are carried at most")
        start = _aligned(_PREFIX.size + len(header))
        frame = torch.empty(start + size, dtype=torch.uint8, device=device)
        flags = CHECKED if self._checked else 0
        opening = bytearray(start)
        _PREFIX.pack_into(opening, 0, MAGIC, 0, flags, len(header), len(frame))
        opening[_PREFIX.size : _PREFIX.size + len(header)] = header
        frame[:start] = torch.frombuffer(opening, dtype=torch.uint8)
        self._fill(frame[start:], described, tensors)
        if self._checked:
            frame[len(MAGIC) : _CHECKED_FROM] = torch.frombuffer(bytearray(struct.pack("<Q", self._checksum(frame))), dtype=torch.uint8)
        return frame

    def unpack(self, data: Buffer, land: Land) -> tuple[dict[str, Any], list[WireTensor]]:
        """(metadata, tensors) of a frame; the tensors are views of what `land` returned for the bytes behind the header.

        PayloadError says what is wrong with bytes that are no frame, cut short, or changed; `land` is not called for those. It is called
        before the header is read: on a card the copy runs meanwhile.
        """
        frame = byte_tensor(data)
        header_size, start = self._open(frame)
        landed = land(frame[start:])
        header = self._header(frame[_PREFIX.size : _PREFIX.size + header_size])
        try:
            return dict(header["metadata"]), [self._tensor(entry, landed) for entry in header["tensors"]]
        except (KeyError, TypeError, ValueError) as error:
            raise PayloadError(f"payload header does not describe its tensors: {error!r}") from error

    def _fill(self, body: torch.Tensor, described: Sequence[Mapping[str, Any]], tensors: Sequence[WireTensor]) -> None:
        """Copy the tensors to their places; what lies between them is zero, since the checksum covers it."""
        end = 0
        for entry, item in zip(described, tensors, strict=True):
            body[end : entry["offset"]] = 0
            end = entry["offset"] + item.tensor.nbytes
            body[entry["offset"] : end].copy_(item.tensor.contiguous().view(-1).view(torch.uint8))
        body[end:] = 0

    def _open(self, frame: torch.Tensor) -> tuple[int, int]:
        """The bytes of header, and where the tensors start."""
        if len(frame) < _PREFIX.size:
            raise PayloadError(f"payload of {len(frame)} bytes is shorter than its {_PREFIX.size} byte prefix")
        magic, sent, flags, header_size, total = _PREFIX.unpack(frame[: _PREFIX.size].cpu().numpy().tobytes())
        if magic != MAGIC:
            raise PayloadError(f"payload starts with {magic!r}, not {MAGIC!r}")
        self._check_length(len(frame), total)
        self._check_sum(sent if flags & CHECKED else None, frame)
        start = _aligned(_PREFIX.size + header_size)
        if header_size > HEADER_LIMIT or start > total:
            raise PayloadError(f"payload header of {header_size} bytes, more than {HEADER_LIMIT} or than the payload holds")
        return header_size, start

    def _header(self, text: torch.Tensor) -> dict[str, Any]:
        try:
            return json.loads(text.cpu().numpy().tobytes())
        except (ValueError, RecursionError) as error:
            raise PayloadError(f"payload header is not JSON: {error}") from error

    def _check_length(self, got: int, total: int) -> None:
        if got != total:
            raise PayloadError(f"payload of {got} bytes, sent as {total}")

    def _check_sum(self, sent: int | None, frame: torch.Tensor) -> None:
        if not self._checked:
            return
        if sent is None:
            raise PayloadError("payload carries no checksum, and this stage asks for one; checksum=off on both, or on neither")
        got = self._checksum(frame)
        if got != sent:
            raise PayloadError(f"payload checksum {got:#018x}, sent as {sent:#018x}: bytes changed on the way")

    def _checksum(self, frame: torch.Tensor) -> int:
        """Of all that follows the checksum itself."""
        return checksum(frame[_CHECKED_FROM:])

    def _describe(self, item: WireTensor, offset: int) -> dict[str, Any]:
        tensor = item.tensor
        if tensor.dtype not in _NAMES:
            raise ValueError(f"{item.name}: KV of {tensor.dtype} cannot be sent; {sorted(_DTYPES)} can")
        return {"name": item.name, "order": item.order, "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "offset": offset}

    def _tensor(self, entry: Mapping[str, Any], landed: torch.Tensor) -> WireTensor:
        """The view that one entry of the header describes. ValueError for one that cannot be."""
        dtype, shape, offset = _DTYPES[entry["dtype"]], entry["shape"], entry["offset"]
        if not all(type(number) is int for number in (entry["order"], offset, *shape)):
            raise ValueError(f"{entry['name']} has order {entry['order']!r}, offset {offset!r} and shape {shape!r}, which are integers")
        end = offset + math.prod(shape) * dtype.itemsize
        # Also where one size is 0, the product of the others is what a view of them has to count.
        countable = math.prod(max(1, n) for n in shape) < 1 << 48
        if min(shape, default=1) < 0 or not countable or offset % ALIGN or not 0 <= offset <= end <= len(landed):
            raise ValueError(f"{entry['name']} lies at bytes {offset} to {end} of {len(landed)}")
        return WireTensor(entry["name"], entry["order"], landed[offset:end].view(dtype).view(shape))
