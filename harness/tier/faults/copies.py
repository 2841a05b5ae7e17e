"""Faults of the copies between device and host: when they run, what they bring, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.tier.faults.register import catalogued
from harness.tier.protocol import Tier
from harness.tier.reference.config import FULL, SLIDING
from harness.tier.reference.streams import Event


@catalogued(
    "store-races-compute",
    "scheduler:Scheduler.launch",
    claims=["tier.bytes.restored"],
    source="vllm#46278, #45704, #31210; sglang#20611",
)
def store_races_compute(original: Any, scheduler: Any) -> None:
    """A chunk's pages are written to the host when its forward is launched, and may be read before it has run."""
    before = scheduler.executor.compute_event()
    for run in scheduler.running:
        begin, end = run.computed, run.computed + len(run.next_tokens(scheduler.policy.chunk))
        if end <= len(run.ids) and end % scheduler.policy.chunk == 0:
            scheduler.keeping.keep(run, begin // scheduler.policy.page, end // scheduler.policy.page, before)
    original(scheduler)


@catalogued(
    "load-races-compute",
    "executor:Executor.load",
    claims=["tier.abort.place_loaded_into"],
    source="sglang#36738; vllm#47282",
)
def load_races_compute(original: Any, executor: Any, pairs: Any, after: Event) -> Any:
    """A load does not wait for the steps in flight, which may still write where it goes."""
    return original(executor, pairs, Event(executor.streams.compute, 0, None))


@catalogued(
    "layer-wait-missing",
    "cache:PagedCache.wait_for_layer",
    claims=["tier.copies.slow_load", "tier.bytes.slow_load"],
    source="sglang#22811",
)
def layer_wait_missing(original: Any, cache: Any, layer: int) -> None:
    """The layers of one group read their pages without waiting for the load."""
    if cache.config.group(layer) != FULL:
        original(cache, layer)


@catalogued(
    "host-freed-during-load",
    "admission:Admission.load",
    claims=["tier.copies.host_pinned"],
    source="sglang#31427, #26728",
)
def host_freed_during_load(original: Any, admission: Any, *args: Any) -> None:
    """Host pages may be let go as soon as their load is submitted."""
    original(admission, *args)
    copy, sources = admission.loading[-1]
    admission.loading[-1] = (copy, [])
    for kept in sources:
        admission.host.unpin(kept)


@catalogued(
    "backup-source-unpinned",
    "keeping:Keeping.pin_sources",
    claims=["tier.eviction.source_pinned"],
    source="tokenspeed#293 (review)",
)
def backup_source_unpinned(original: Any, keeping: Any, sources: list[Any]) -> list[Any]:
    """The device's pages may be used for something else while they are written to the host."""
    return []


@catalogued(
    "writeback-acked-on-failure",
    "keeping:Keeping.stored",
    claims=["tier.copies.failed_store"],
    source="tokenspeed#1125 (bot), #406 (bot)",
)
def writeback_acked_on_failure(original: Any, keeping: Any, writing: Any) -> bool:
    """A write-back that failed counts as stored."""
    return True


@catalogued(
    "head-pages-not-stored",
    "keeping:Keeping.write_back",
    claims=["tier.eviction.host_has_heads"],
    source="sglang#26886 (comment with measurement)",
)
def head_pages_not_stored(original: Any, keeping: Any, new: list[Any], now: int, computed: Event) -> None:
    """The first two pages of a prompt are not written to the host."""
    original(keeping, [kept for kept in new if kept.key.depth > 1], now, computed)


@catalogued(
    "sidecar-missing",
    "executor:Executor.load",
    claims=["tier.groups.both"],
    source="sglang#30057, #31108",
)
def sidecar_missing(original: Any, executor: Any, pairs: Mapping[str, Any], after: Event) -> Any:
    """Only the full layers' pages come back."""
    return original(executor, {FULL: pairs[FULL]}, after)


@catalogued(
    "recurrent-state-lost",
    "executor:Executor.store",
    claims=["tier.groups.both"],
    source="sglang#33713; llama.cpp#28194, #25913",
)
def recurrent_state_lost(original: Any, executor: Any, pairs: Mapping[str, Any], after: Event) -> Any:
    """The state of the sliding layers is not written to the host."""
    return original(executor, {group: places for group, places in pairs.items() if group != SLIDING}, after)


@catalogued(
    "capacity-split",
    "kept:TierIndex.__init__",
    claims=["tier.eviction.host_capacity"],
    source="vllm#56871",
)
def capacity_split(original: Any, index: Any, tier: Tier, size: int, groups: Any) -> None:
    """On the host a page of tokens reserves places for all groups once for each group."""
    original(index, tier, size // len(groups) if tier is Tier.HOST else size, groups)


@catalogued(
    "host-refcount-leak",
    "admission:Admission.loaded",
    claims=["tier.leaks.requests"],
    source="LMCache#3884, #987, #993, #1756",
)
def host_refcount_leak(original: Any, admission: Any, copy: Any, sources: list[Any]) -> None:
    """One of the host's pages that a load has read stays pinned."""
    original(admission, copy, sources[1:])


@catalogued(
    "lookup-lock-leak",
    "admission:Admission.unpin",
    claims=["tier.leaks.requests"],
    source="vllm#44101, #35931; LMCache#4852, sglang#40334",
)
def lookup_lock_leak(original: Any, admission: Any, found: Any) -> None:
    """What was found for a request that could not be admitted stays pinned."""


@catalogued(
    "lookup-retrieve-toctou",
    "admission:Admission.make_room",
    claims=["tier.eviction.hits_pinned"],
    source="LMCache#4133; related #5098",
)
def lookup_retrieve_toctou(original: Any, admission: Any, found: Any, count: int) -> bool:
    """Between the lookup and its use, what was found may be let go to make room."""
    for kept in found.device.values():
        kept.pins -= 1
    had = original(admission, found, count)
    for kept in found.device.values():
        kept.pins += 1
    return had
