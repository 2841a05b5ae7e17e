"""Many copies between the host's pinned memory and a card, submitted in one call of the driver.

A copy a call keeps a card waiting: submitting one takes longer than moving the 128 KiB of a piece of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch


@cache
def submitter() -> Any:
    """`cuda.bindings.runtime`, which comes with torch's CUDA builds, or None: without it, or without the call, which CUDA 12.8 brought."""
    try:
        from cuda.bindings import runtime
    except ImportError:
        return None
    return runtime if hasattr(runtime, "cudaMemcpyBatchAsync") else None


def copy(targets: Sequence[int], sources: Sequence[int], size: int) -> None:
    """Copy `size` bytes from each address to the target at its place, on torch's current stream. RuntimeError if CUDA refuses.

    The copies may run in any order: no target is named twice, and none is a source. All of them read in the order of the stream.
    """
    runtime = submitter()
    attributes = runtime.cudaMemcpyAttributes()
    attributes.srcAccessOrder = runtime.cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderStream
    count, stream = len(targets), torch.cuda.current_stream().cuda_stream
    (status,) = runtime.cudaMemcpyBatchAsync(list(targets), list(sources), [size] * count, count, [attributes], [0], 1, stream)
    if status != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"{count} copies of {size} bytes: {status.name}")
