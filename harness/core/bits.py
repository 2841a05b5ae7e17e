"""Equality of bit patterns: shape, dtype, finiteness, then every bit.

Stricter than array equality on purpose: -0.0 is not 0.0, and a NaN is a divergence even where both sides hold the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

NEAR_ULP = 4096
"""A distance up to which values look like one computation rounded in two ways; beyond it, the number says nothing to a reader."""

_INTEGER_OF_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Divergence:
    """Where two tensors first differ. `index` is empty when shape or dtype already do; `ulp` counts steps between floats."""

    index: tuple[int, ...]
    got: str
    expected: str
    differing: int
    total: int
    ulp: int | None = None

    def at(self, axes: Sequence[str] = ()) -> str:
        """The index with axis names, as in `token 3, head 0, dim 7`."""
        if not self.index:
            return ""
        names = list(axes) if len(axes) == len(self.index) else [f"axis {i}" for i in range(len(self.index))]
        return ", ".join(f"{name} {i}" for name, i in zip(names, self.index, strict=True))

    def extent(self) -> str:
        """How much differs, in words."""
        if not self.index:
            return "the whole tensor"
        near = self.ulp is not None and 0 < self.ulp <= NEAR_ULP
        return f"{self.differing}/{self.total} values" + (f"; the first by {self.ulp} ulp" if near else "")


def pattern(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits as integers of the same width, on the CPU; shape kept. Complex numbers count as two floats."""
    # A lazy conjugate or negation has no bits of its own before it is resolved.
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype is torch.bool:
        return tensor.cpu().to(torch.uint8)
    return tensor.detach().cpu().contiguous().view(_INTEGER_OF_WIDTH[tensor.element_size()])


def ulp_distance(got: torch.Tensor, expected: torch.Tensor) -> int | None:
    """Representable steps between two finite scalars of one float dtype; None for other dtypes and non-finite values."""
    if not got.is_floating_point() or not (torch.isfinite(got.float()) and torch.isfinite(expected.float())):
        return None
    width = 8 * got.element_size()

    def ordered(value: torch.Tensor) -> int:
        bits = int(pattern(value.reshape(1))[0]) & ((1 << width) - 1)
        sign = 0 if value.dtype is torch.float8_e8m0fnu else 1 << (width - 1)
        return sign - bits if bits & sign else bits

    return abs(ordered(got) - ordered(expected))


def first_divergence(got: torch.Tensor, expected: torch.Tensor, *, finite: bool = True) -> Divergence | None:
    """None if both hold the same finite values bit for bit, else the first difference in row-major order.

    `finite=False` asks for the same bits alone, whatever they mean: two runs that both give a NaN do not differ.
    """
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return Divergence((), _kind(got), _kind(expected), max(got.numel(), expected.numel()), expected.numel())
    got, expected = got.detach().cpu(), expected.detach().cpu()
    wrong = pattern(got) != pattern(expected)
    if got.is_complex():
        wrong = wrong.any(-1)
    if finite and (got.is_floating_point() or got.is_complex()):
        # float8 has no isfinite of its own; float32 holds each of its values exactly.
        wide = got.float() if got.is_floating_point() and got.element_size() < 4 else got
        wrong = wrong | ~torch.isfinite(wide)
    if not bool(wrong.any()):
        return None
    index = tuple(int(i) for i in torch.nonzero(wrong if wrong.dim() else wrong.reshape(1))[0])
    index = index if got.dim() else ()
    here, there = got[index], expected[index]
    return Divergence(
        index=index or (0,),
        got=_value(here),
        expected=_value(there),
        differing=int(wrong.sum()),
        total=got.numel(),
        ulp=ulp_distance(here, there),
    )


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _value(scalar: torch.Tensor) -> str:
    bits = pattern(scalar.reshape(1)).reshape(-1)
    width = 8 * bits.element_size()
    raw = " ".join(f"{int(b) & ((1 << width) - 1):#0{2 + width // 4}x}" for b in bits)
    return f"{raw} ({scalar.item():.8g})" if scalar.is_floating_point() or scalar.is_complex() else f"{scalar.item()}"
