"""Wrong counts: more or less is reused than the policy has it, or it is told of the wrong tier."""

from __future__ import annotations

from typing import Any

from harness.tier.protocol import Outcome, Tier, TierHits
from harness.tier.reference.keys import Key, Keys, Owner
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("a-chunk-less", "admission:Admission.reach", "tier.accounting.warm")
def a_chunk_less(original: Any, admission: Any, pages: int, prompt: int) -> int:
    """The last chunk that could be skipped is computed again."""
    return max(0, original(admission, pages, prompt) - admission.policy.chunk // admission.policy.page)


@wrong_input("last-two-tokens", "admission:Admission.reach", "tier.accounting.lengths")
def last_two_tokens(original: Any, admission: Any, pages: int, prompt: int) -> int:
    """The last two tokens of a prompt are computed, whatever is kept."""
    return original(admission, pages, prompt - 1)


@wrong_input("last-token-not-in-key", "keys:Keys.chain", "tier.accounting.partial", "tier.keys.diverging")
def last_token_not_in_key(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """A page is kept under all of its tokens but the last."""
    return original(keys, [0 if at % keys.page == keys.page - 1 else token for at, token in enumerate(ids)], owner)


@wrong_input("last-chunk-not-kept", "keeping:Keeping.keep", "tier.accounting.longer")
def last_chunk_not_kept(original: Any, keeping: Any, run: Any, first: int, last: int, computed: Any) -> None:
    """The last whole chunk of a prompt is not kept where only a few tokens come after it."""
    page = len(run.keys[0].tokens)
    if len(run.ids) - last * page > page - 2:
        original(keeping, run, first, last, computed)


@wrong_input("answer-kept", "scheduler:Scheduler.end", "tier.accounting.answer")
def answer_kept(original: Any, scheduler: Any, run: Any, outcome: Outcome, error: str | None = None) -> Any:
    """What was decoded is kept with the prompt."""
    moment = scheduler.admission.moment()
    keys = Keys(scheduler.policy.page).chain((*run.ids, *run.tokens[:-1]), run.owner)
    for at, key in enumerate(keys):
        if at in run.own:
            run.kept[at] = scheduler.device.keep(key, run.own.pop(at), moment)
            scheduler.device.pin(run.kept[at])
    return original(scheduler, run, outcome, error)


@wrong_input("tiers-exchanged", "admission:Admission.tell", "tier.accounting.host")
def tiers_exchanged(original: Any, admission: Any, run: Any, found: Any) -> None:
    """What came from the host is told of the device, and the other way round."""
    original(admission, run, found)
    run.told = TierHits(run.told.host, run.told.device)


@wrong_input("host-survives-flush", "kept:TierIndex.__iter__", "tier.accounting.flushed")
def host_survives_flush(original: Any, index: Any) -> Any:
    """A flush goes through the device alone."""
    return iter([]) if index.tier is Tier.HOST else original(index)


@wrong_input("abort-forgets", "scheduler:Scheduler.end", "tier.accounting.aborted")
def abort_forgets(original: Any, scheduler: Any, run: Any, outcome: Outcome, error: str | None = None) -> Any:
    """What an aborted request had computed is not kept."""
    if outcome is Outcome.ABORTED:
        for kept in run.kept.values():
            there = scheduler.host.find(kept.key)
            scheduler.device.forget(kept)
            if there is not None:
                scheduler.host.forget(there)
    return original(scheduler, run, outcome, error)


@wrong_input("newest-comes-first", "scheduler:Scheduler.admit", "tier.accounting.together", "tier.accounting.waiting")
def newest_comes_first(original: Any, scheduler: Any) -> None:
    """Of those that wait, the one that came last is admitted first."""
    scheduler.waiting.reverse()
    original(scheduler)
    scheduler.waiting.reverse()
