"""Wrong answers about two rounds of prompts: what either build keeps, and what it says of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.tier.protocol import Tier, TierHits
from harness.tier.wrong_inputs.register import wrong_input

ADAPTER = "harness.tier.engines.reference"


@wrong_input("half-a-prompt", "intake:Intake._ids", "tier.rounds.prompt_tokens")
def half_a_prompt(original: Any, intake: Any, request: Any) -> tuple[int, ...]:
    """Of a text only the second half is read."""
    ids = original(intake, request)
    return ids[len(ids) // 2 :] if isinstance(request.prompt, str) else ids


@wrong_input("host-memory-is-device-memory", "engine:ReferenceServer.__init__", "tier.rounds.sizing")
def host_memory_is_device_memory(original: Any, server: Any, network: Any, tokenizer: Any, executor: Any, policy: Any, limit: int) -> None:
    """A build with a host tier counts its pages among the device's."""
    original(server, network, tokenizer, executor, policy, limit)
    server.device_capacity += server.host_capacity


@wrong_input("a-page-is-always-cached", "admission:Admission.tell", "tier.rounds.cold", "tier.accounting.cold")
def a_page_is_always_cached(original: Any, admission: Any, run: Any, found: Any) -> None:
    """A request says one page more than it found."""
    original(admission, run, found)
    run.told = replace(run.told, device=run.told.device + admission.policy.page)


@wrong_input("host-never-hit", "kept:TierIndex.find", "tier.rounds.host_tier", "tier.rounds.on_beats_off")
def host_never_hit(original: Any, index: Any, key: Any) -> Any:
    """What is written to the host is not found there."""
    return None if index.tier is Tier.HOST else original(index, key)


@wrong_input("host-always-on", f"{ADAPTER}:_options", "tier.rounds.device_only")
def host_always_on(original: Any, config: Any) -> dict[str, str]:
    """A build without a host tier has one all the same."""
    return original(config) | {"host": "on"}


@wrong_input("warm-answers-shift", "run:Run.decide", "tier.rounds.some_text", "tier.rounds.every_text")
def warm_answers_shift(original: Any, run: Any, token: int, logits: Any) -> None:
    """A request that reused anything answers with the next token each time."""
    original(run, token + 1 if run.told.total else token, logits)


@wrong_input("newest-goes-first", "kept:TierIndex.rank", "tier.rounds.counts", "tier.accounting.evicted", "tier.accounting.host_evicted")
def newest_goes_first(original: Any, kept: Any) -> tuple[int, int]:
    """What was used last goes first."""
    used, back = original(kept)
    return -used, back


@wrong_input("hits-of-the-whole-prompt", "admission:Admission.tell", "tier.accounting.bounds")
def hits_of_the_whole_prompt(original: Any, admission: Any, run: Any, found: Any) -> None:
    """A request that found anything says that all of it was cached, its last token too."""
    original(admission, run, found)
    if run.told.total:
        run.told = TierHits(len(run.ids), 0)
