"""Host memory that a card reads at the bus's rate: pages that CUDA has locked."""

from __future__ import annotations

import weakref

import numpy as np
import torch


def pin(memory: np.ndarray) -> None:
    """Lock the memory of an array, at page boundaries, for as long as the array lives. RuntimeError where CUDA refuses.

    Tensors made from it are pinned then. It takes longer than a copy of the same bytes: worth it for memory that is used again.
    """
    runtime, address = torch.cuda.cudart(), memory.ctypes.data
    error = runtime.cudaHostRegister(address, memory.nbytes, 0)
    if int(error):
        raise RuntimeError(f"CUDA cannot lock {memory.nbytes} bytes of host memory: {error}; build the connector with pin=off")
    # Before the memory is unmapped: the array holds it until this has run.
    weakref.finalize(memory, runtime.cudaHostUnregister, address).atexit = False
