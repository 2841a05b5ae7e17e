"""Values on their way between processes: tensors as bytes, and large payloads as the seed that they are drawn from.

torch would hand a pickled tensor over as a shared memory segment. Those would stand among the segments that the checks count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from harness.transfer.protocol import Delivery


@dataclass(frozen=True)
class Drawn:
    """Stands for `size` seeded bytes, uint8[size], that each process draws for itself."""

    seed: int
    size: int

    def tensor(self) -> torch.Tensor:
        return torch.randint(0, 256, (self.size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(self.seed))


@dataclass(frozen=True)
class _Tensor:
    dtype: torch.dtype
    shape: tuple[int, ...]
    data: bytes


def packed(value: Any) -> Any:
    """`value` without tensors and views, ready to be pickled; what is an engine's own (`Delivery.native`) is left behind."""
    if isinstance(value, Delivery):
        value = replace(value, native=None, metadata=dict(value.metadata))
    return _mapped(value, packed, _packed_leaf)


def unpacked(value: Any) -> Any:
    """What was packed; tensors lie on the CPU, in memory of their own."""
    return value.tensor() if isinstance(value, Drawn) else _mapped(value, unpacked, _unpacked_leaf)


def _packed_leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
        return _Tensor(value.dtype, tuple(value.shape), flat.numpy().tobytes())
    return bytes(value) if isinstance(value, (memoryview, bytearray)) else value


def _unpacked_leaf(value: Any) -> Any:
    if not isinstance(value, _Tensor):
        return value
    if not value.data:
        return torch.empty(value.shape, dtype=value.dtype)
    return torch.frombuffer(bytearray(value.data), dtype=torch.uint8).view(value.dtype).view(value.shape)


def _mapped(value: Any, each: Callable[[Any], Any], leaf: Callable[[Any], Any]) -> Any:
    """`each` applied inside containers and our own value types, `leaf` to what is neither."""
    if isinstance(value, _Tensor):
        return leaf(value)
    if type(value) in (tuple, list):
        return type(value)(map(each, value))
    if isinstance(value, Mapping):
        return {key: each(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith("harness."):
        changed = {f.name: each(getattr(value, f.name)) for f in fields(value) if f.init}
        return replace(value, **changed)
    return leaf(value)
