"""Faults of a request on its way: what it is told, and what happens when it is retracted."""

from __future__ import annotations

from typing import Any

import torch

from harness.tier.faults.register import catalogued
from harness.tier.protocol import TierHits


@catalogued(
    "retract-leaks-pages",
    "scheduler:Scheduler.retract",
    claims=["tier.retract.every_step"],
    source="tokenspeed#767",
)
def retract_leaks_pages(original: Any, scheduler: Any, run: Any) -> None:
    """A request that is retracted does not give back the pages that are its alone."""
    run.own = {}
    original(scheduler, run)


@catalogued(
    "cached-tokens-too-big",
    "admission:Admission.tell",
    claims=["tier.accounting.retracted"],
    source="sglang#11900, #4660; related dynamo#13567 (block-rounded), #4549 (load metric stuck at 0)",
)
def cached_tokens_too_big(original: Any, admission: Any, run: Any, found: Any) -> None:
    """Each admission adds what it hits."""
    before, run.told = run.told or TierHits(0, 0), None
    original(admission, run, found)
    run.told = TierHits(before.device + run.told.device, before.host + run.told.host)


@catalogued(
    "warm-differs-cold",
    "run:Run.next_tokens",
    claims=["tier.bytes.warm"],
    source="vllm#40896, #54490, #5543; sglang#34683",
)
def warm_differs_cold(original: Any, run: Any, chunk: int) -> tuple[int, ...]:
    """Behind a hit the prompt is computed in pieces of a few tokens."""
    warm = run.told is not None and run.told.total > 0
    return original(run, chunk)[: max(1, chunk // 16)] if warm and run.computed < len(run.ids) else original(run, chunk)


@catalogued(
    "preempt-stale-token",
    "run:Run.decide",
    claims=["tier.retract.every_step"],
    source="vllm#28787, #48245, #38624; related sglang#34112 (token after cancel)",
)
def preempt_stale_token(original: Any, run: Any, token: int, logits: torch.Tensor | None) -> None:
    """What was told before a retraction is told again after it."""
    run.tokens.append(token)
    if logits is not None:
        run.logits.append(logits)
    run.decided += 1
