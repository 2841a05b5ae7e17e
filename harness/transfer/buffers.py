"""One way to look at what connectors carry."""

from __future__ import annotations

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
