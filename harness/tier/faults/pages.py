"""Faults of pages: which of them a forward reads and writes, who may have one, and which one goes."""

from __future__ import annotations

from typing import Any

import torch

from harness.tier.faults.register import catalogued
from harness.tier.reference.config import SLIDING
from harness.tier.reference.keys import Key


@catalogued(
    "suffix-overwrites-prefix",
    "cache:PagedCache.places",
    claims=["tier.bytes.shared_prefix"],
    source="tenstorrent/tt-xla#4190 (#3899); hit-path corruption also tenstorrent/vllm#415",
)
def suffix_overwrites_prefix(original: Any, cache: Any, positions: torch.Tensor) -> Any:
    """Behind a hit, keys and values are written from the first page of the table on."""
    return original(cache, positions - positions[0] if len(positions) > 1 else positions)


@catalogued(
    "ring-trimmed-as-flat",
    "cache:PagedCache.seen_pages",
    claims=["tier.groups.window"],
    source="Blaizzy/mlx-vlm#1715, vllm-mlx#775",
)
def ring_trimmed_as_flat(original: Any, cache: Any, group: str, first: int) -> torch.Tensor:
    """The sliding layers are given the first pages of a prompt, as many as their window takes."""
    pages = original(cache, group, first)
    return cache.tables[group][: len(pages)] if group == SLIDING else pages


@catalogued(
    "group-window-applied",
    "config:NetworkConfig.first",
    claims=["tier.groups.everything"],
    source="vllm#51756; related #50457 (hits not reconciled over groups)",
)
def group_window_applied(original: Any, config: Any, group: str, start: int) -> int:
    """The full layers see no more than the window of the sliding ones."""
    return original(config, SLIDING, start)


@catalogued(
    "reads-past-length",
    "cache:PagedCache.gather",
    claims=["tier.groups.free_unread"],
    source="flashinfer#942, vllm#936, #47574, Dao-AILab/flash-attention#2374",
)
def reads_past_length(original: Any, cache: Any, layer: int) -> Any:
    """The rest of the last page is read too, and multiplied by 0."""
    keys, values = original(cache, layer)
    group, page = cache.config.group(layer), cache.pool.page
    behind = [part[cache.end % page :] for part in cache.pool.gather(cache.config.row(layer), cache.tables[group][cache.end // page :][:1])]
    return keys, values + sum(part.sum() for part in behind) * 0


@catalogued(
    "async-input-overwritten",
    "scheduler:Scheduler.tables",
    claims=["tier.bytes.together"],
    source="TensorRT-LLM#15546, #15607; llama.cpp#28056, #28058",
)
def async_input_overwritten(original: Any, scheduler: Any, run: Any, tokens: int) -> Any:
    """All requests' page tables go through one buffer, which is written again while a step in flight still has to read it."""
    tables = original(scheduler, run, tokens)
    for group, pages in tables.items():
        buffer = BUFFERS.setdefault((id(scheduler), group), [])
        buffer[: len(pages)] = pages
        tables[group] = buffer
    return tables


BUFFERS: dict[tuple[int, str], list[int]] = {}
"""Of each server, by group."""


@catalogued(
    "evict-head-first",
    "kept:TierIndex.rank",
    claims=["tier.eviction.tail_first"],
    source="LMCache#4867, #1116, #1154; llm-d-inference-sim#704",
)
def evict_head_first(original: Any, kept: Any) -> tuple[int, int]:
    """Of pages used at one moment the first of a prompt goes first."""
    return kept.used, kept.key.depth


@catalogued(
    "unfinished-insert-freed",
    "admission:Admission.release",
    claims=["tier.abort.prefill"],
    source="sglang#38319, #38355",
)
def unfinished_insert_freed(original: Any, admission: Any, run: Any) -> None:
    """The kept pages of a request that has not ended are given back with its own, and are still found."""
    shared = [kept.pages for kept in run.kept.values() if run.decided < run.wanted]
    original(admission, run)
    for pages in shared:
        admission.device.give(pages)


@catalogued(
    "dup-page-not-remapped",
    "keeping:Keeping.keep",
    claims=["tier.life.twins"],
    source="sgl-project/mini-sglang#142",
)
def dup_page_not_remapped(original: Any, keeping: Any, run: Any, first: int, last: int, computed: Any) -> None:
    """A page that is kept already is given back, and the request that has just computed it goes on reading its own."""
    for at in range(first, last):
        if at in run.own and keeping.device.find(run.keys[at]) is not None:
            keeping.device.give(run.own[at])
    original(keeping, run, first, last, computed)


@catalogued(
    "partial-blocks-evict-full",
    "admission:Admission.release",
    claims=["tier.eviction.partial"],
    source="vllm#42656",
)
def partial_blocks_evict_full(original: Any, admission: Any, run: Any) -> None:
    """The pages behind the last whole chunk stay on the device under keys that nobody asks for, and are let go in their turn."""
    own, run.own = dict(run.own), {}
    original(admission, run)
    now = admission.moment()
    for at, pages in own.items():
        admission.device.keep(Key(None, (run.handle, at), run.owner, hash((run.handle, at))), pages, now)


@catalogued(
    "nan-cached",
    "executor:Pending.take",
    claims=["tier.input.not_finite"],
    source="tokenspeed#434 (adds isolation), vllm#50283 (comment)",
)
def nan_cached(original: Any, pending: Any) -> Any:
    """Nobody looks whether what a forward gave is finite."""
    taken = original(pending)
    return type(taken)(taken.token, taken.logits, True)
