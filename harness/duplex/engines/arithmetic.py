"""Switches of torch that a released engine leaves to its caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
