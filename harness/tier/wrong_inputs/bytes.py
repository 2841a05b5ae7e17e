"""Wrong bytes: what is computed with is not what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.tier.reference.config import FULL, SLIDING
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("restored-in-another-order", "executor:Executor.load", "tier.bytes.host_warm", "tier.bytes.pressure")
def restored_in_another_order(original: Any, executor: Any, pairs: Mapping[str, Sequence[tuple[int, int]]], after: Any) -> Any:
    """The pages of a load go to one another's places."""
    turned = {group: [(there, pages[-1 - at][1]) for at, (there, _) in enumerate(pages)] for group, pages in pairs.items()}
    return original(executor, turned, after)


@wrong_input("first-page-read-twice", "scheduler:Scheduler.tables", "tier.bytes.partial", "tier.bytes.together")
def first_page_read_twice(original: Any, scheduler: Any, run: Any, tokens: int) -> dict[str, tuple[int, ...]]:
    """Behind a hit, the first page of the prompt is read in place of the second."""
    tables = original(scheduler, run, tokens)
    return {group: (pages[0], *pages[:1], *pages[2:]) if run.told.total else pages for group, pages in tables.items()}


@wrong_input("first-token-forgotten", "cache:PagedCache.gather", "tier.bytes.anew")
def first_token_forgotten(original: Any, cache: Any, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The full layers see nothing at the prompt's first position, cold or warm."""
    keys, values = original(cache, layer)
    if cache.config.group(layer) == FULL:
        keys, values = keys.clone(), values.clone()
        keys[:, :, 0], values[:, :, 0] = 0, 0
    return keys, values


@wrong_input("far-pages-skipped", "config:NetworkConfig.first", "tier.bytes.corrupt_full")
def far_pages_skipped(original: Any, config: Any, group: str, start: int) -> int:
    """The full layers do not look back farther than two windows."""
    return max(0, start - 2 * config.window) if group == FULL else original(config, group, start)


@wrong_input("window-ignored", "config:NetworkConfig.first", "tier.bytes.corrupt_sliding")
def window_ignored(original: Any, config: Any, group: str, start: int) -> int:
    """The sliding layers look back two windows."""
    return max(0, start - 2 * config.window) if group == SLIDING else original(config, group, start)
