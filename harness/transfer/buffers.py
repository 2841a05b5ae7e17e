"""One way to look at what connectors carry."""

from __future__ import annotations

import warnings

import torch

from harness.transfer.protocol import Buffer


def byte_view(data: Buffer) -> memoryview:
    """The bytes of `data` as a flat memoryview, without a copy where they lie in host memory.

    A tensor must be contiguous, one-dimensional and uint8 (ValueError); anything that holds no buffer is a TypeError.
    """
    if isinstance(data, torch.Tensor):
        if data.dtype != torch.uint8 or data.dim() != 1 or not data.is_contiguous():
            raise ValueError(f"a carried tensor is contiguous, one-dimensional and uint8, not {data.dtype} of shape {list(data.shape)}")
        return memoryview(data.detach().cpu().numpy())
    view = memoryview(data)
    # What holds no byte cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


def byte_tensor(data: Buffer) -> torch.Tensor:
    """The bytes of `data` as uint8[n], where they lie, without a copy; not to be written to. Errors as `byte_view`."""
    if isinstance(data, torch.Tensor) and data.device.type != "cpu":
        if data.dtype != torch.uint8 or data.dim() != 1 or not data.is_contiguous():
            raise ValueError(f"a carried tensor is contiguous, one-dimensional and uint8, not {data.dtype} of shape {list(data.shape)}")
        return data
    view = byte_view(data)
    if not len(view):
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(view, dtype=torch.uint8)


with warnings.catch_warnings():
    # torch has no read-only tensors, and says so of the first one in a process.
    warnings.simplefilter("ignore", UserWarning)
    torch.frombuffer(b"\0", dtype=torch.uint8)
