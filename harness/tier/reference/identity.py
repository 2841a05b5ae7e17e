"""What changes the numbers of a prompt beside its tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Identity:
    """Whose numbers they are: `adapter` and `version` by name, `media` the bytes of an image before the prompt; None: the plain network."""

    adapter: str | None = None
    version: str | None = None
    media: bytes | None = None


PLAIN = Identity()


def drawn(name: bytes, *shape: int) -> torch.Tensor:
    """f32[shape] on the CPU: normal numbers that are a function of `name`."""
    seed = int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> 1
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
