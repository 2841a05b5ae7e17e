"""Switches of torch that a released engine leaves to its caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

BACKENDS = {"default": None, "math": "MATH", "efficient": "EFFICIENT_ATTENTION", "flash": "FLASH_ATTENTION"}
"""What the option `sdpa` may say, to torch's name of it; None leaves the choice to torch."""


@contextmanager
def attention(sdpa: str) -> Iterator[None]:
    """Every scaled_dot_product_attention inside takes this backend; torch raises where it cannot."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = BACKENDS[sdpa]
    if backend is None:
        yield
        return
    # Older releases give it no lookup by name.
    with sdpa_kernel(getattr(SDPBackend, backend)):
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """A tick of a tiny network is hundreds of small operations: threads that wait for each other in each take longer than one alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
