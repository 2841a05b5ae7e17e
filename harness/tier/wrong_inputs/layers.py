"""Wrong reads: layers that see too little, or what nobody wrote for them."""

from __future__ import annotations

from typing import Any

from harness.tier.reference.config import SLIDING
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("short-hit-cut", "config:NetworkConfig.first", "tier.groups.hit_lengths")
def short_hit_cut(original: Any, config: Any, group: str, start: int) -> int:
    """Behind a hit shorter than the window, sliding layers see its later half."""
    return start // 2 if group == SLIDING and 0 < start < config.window else original(config, group, start)


@wrong_input("tail-is-added", "cache:PagedCache.gather", "tier.groups.reused_pages")
def tail_is_added(original: Any, cache: Any, layer: int) -> Any:
    """What lies behind the end, in the last page, is a small part of every value."""
    keys, values = original(cache, layer)
    group, page = cache.config.group(layer), cache.pool.page
    behind = [part[cache.end % page :] for part in cache.pool.gather(cache.config.row(layer), cache.tables[group][cache.end // page :][:1])]
    return keys, values + 0.01 * sum(part.float().mean() for part in behind if len(part))
