"""Copies of pages between the tiers, timed alone, on an engine that lets them be called: its own copies, on its own streams."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from harness.core.clock import Clock
from harness.core.doctor.rates import synchronize
from harness.tier.protocol import PrefixCacheServer, Tier
from harness.tier.reference.config import FULL

ROUNDS = 7
PAGES = 512
"""Of a copy, at most: what a prompt of some thousand tokens takes."""


@dataclass(frozen=True)
class Copies:
    """`write_back` and `load_back` in bytes a second, of copies of `size` bytes in `pages` scattered pages."""

    pages: int
    size: int
    write_back: float
    load_back: float


def token_bytes(engine: PrefixCacheServer) -> int | None:
    """Of one token's keys and values in all layers; None where the engine does not say."""
    executor = executor_of(engine)
    if executor is None:
        return getattr(engine, "token_bytes", None)
    return engine.footprint * executor.pools[Tier.DEVICE].page_bytes // executor.page


def executor_of(engine: PrefixCacheServer) -> Any:
    """What carries out the copies, where the engine or its lab shows it."""
    return getattr(engine, "executor", None) or getattr(engine.lab, "executor", None)


def measured(engine: PrefixCacheServer, device: torch.device, clock: Clock) -> Copies | None:
    """None for an engine that shows no executor, or has no host tier.

    All that is kept is forgotten first: the pages that are copied over are free.
    """
    executor = executor_of(engine)
    if executor is None or not engine.host_capacity:
        return None
    engine.flush()
    pools = executor.pools
    pages = min(PAGES, pools[Tier.DEVICE].pages, pools[Tier.HOST].pages)
    device_pages, host_pages = (Random(seed).sample(range(pools[tier].pages), pages) for seed, tier in enumerate((Tier.DEVICE, Tier.HOST)))
    group = FULL
    size = pages * pools[Tier.DEVICE].page_bytes
    written, loaded = [], []
    for _ in range(1 + ROUNDS):
        for copy, pairs, times in (
            (executor.store, list(zip(device_pages, host_pages, strict=True)), written),
            (executor.load, list(zip(host_pages, device_pages, strict=True)), loaded),
        ):
            synchronize(device)
            began = clock.now()
            copy({group: pairs}, executor.compute_event()).wait()
            synchronize(device)
            times.append(clock.now() - began)
    return Copies(pages, size, *(size / statistics.median(times[1:]) for times in (written, loaded)))
