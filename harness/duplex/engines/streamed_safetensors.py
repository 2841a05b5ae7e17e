"""Writes a safetensors file one tensor at a time, so that a file larger than memory can be made.

The format: the header's length (u64, little endian), the header (JSON: name to dtype, shape and the range of its bytes), then the bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16"}


@dataclass(frozen=True)
class Planned:
    """A tensor that is to be written: what it will be, and how it is made when its turn comes."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], torch.Tensor]

    @property
    def size(self) -> int:
        """Bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def write(path: Path, plan: Mapping[str, Planned]) -> None:
    """Make and write every tensor, in the plan's order. ValueError for one that is not what was planned."""
    header, offset = {}, 0
    for name, planned in plan.items():
        header[name] = {"dtype": _NAMES[planned.dtype], "shape": list(planned.shape), "data_offsets": [offset, offset + planned.size]}
        offset += planned.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, planned in plan.items():
            tensor = planned.make()
            if tuple(tensor.shape) != planned.shape or tensor.dtype != planned.dtype:
                raise ValueError(
                    f"{name}: made {tuple(tensor.shape)} of {tensor.dtype}, where {planned.shape} of {planned.dtype} was planned"
                )
            file.write(tensor.contiguous().view(torch.uint8).numpy().data)
