"""Faults that prove the proof: a null fault, which no check may notice, and a canary, which many must."""

from __future__ import annotations

from typing import Any

import torch

from harness.core.faults import Role, fault
from harness.tier.faults.register import REFERENCE


@fault("tier/null", seam=f"{REFERENCE}.cache:PagedCache.gather", role=Role.NULL)
def null(original: Any, cache: Any, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Nothing is wrong."""
    return original(cache, layer)
