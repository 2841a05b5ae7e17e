"""Faults that prove the proof: a null fault, which no check may notice, and a canary, which many must."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch

from harness.core.faults import Role, fault
from harness.tier.faults.register import ENGINE, REFERENCE


@fault("tier/null", seam=f"{REFERENCE}.cache:PagedCache.gather", role=Role.NULL, engine="tier/reference")
def null(original: Any, cache: Any, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Nothing is wrong."""
    return original(cache, layer)


@fault(
    "tier/canary",
    seam=f"{REFERENCE}.network:Network.run",
    role=Role.CANARY,
    engine=ENGINE,
    claims=[
        "tier.bytes.warm",
        "tier.bytes.host_warm",
        "tier.bytes.partial",
        "tier.bytes.anew",
        "tier.bytes.together",
        "tier.copies.slow_load",
        "tier.groups.hit_lengths",
        "tier.retract.every_step",
        "tier.abort.shared_prefix",
        "tier.life.twins",
        "tier.life.branches",
    ],
)
def canary(original: Any, network: Any, *args: Any) -> torch.Tensor:
    """The logits tell how many forwards there were before."""
    return original(network, *args) * (1 + 2.0**-12 * next(FORWARDS))


FORWARDS = count(1)
"""Of this process."""
