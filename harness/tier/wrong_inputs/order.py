"""Wrong orders, and what is told after a retraction, a failed load, or a collision that is not of the first page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.tier.reference.keys import Key
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("write-backs-settled-late", "keeping:Keeping.settle", "tier.order.steps")
def write_backs_settled_late(original: Any, keeping: Any) -> None:
    """A write-back is taken in a step after it is over: its pages are held for as long."""
    fresh, keeping.writing = keeping.writing, [writing for writing in keeping.writing if id(writing) in SEEN]
    settled = list(keeping.writing)
    original(keeping)
    SEEN.update(id(writing) for writing in fresh)
    keeping.writing += [writing for writing in fresh if writing not in settled]


SEEN: set[int] = set()
"""Write-backs that were under way a step ago."""


@wrong_input("batch-in-order-of-submission", "scheduler:Scheduler.take_in", "tier.order.used_last")
def batch_in_order_of_submission(original: Any, scheduler: Any) -> Any:
    """What a step computed is taken in by the order in which requests were sent."""
    scheduler.running.sort(key=lambda run: run.handle)
    return original(scheduler)


@wrong_input("undone-in-reverse", "scheduler:Scheduler._undo", "tier.order.failed_together")
def undone_in_reverse(original: Any, scheduler: Any, runs: list[Any]) -> None:
    """Of requests whose load failed the last one is admitted first."""
    original(scheduler, runs[::-1])


@wrong_input("failed-load-told-again", "scheduler:Scheduler._undo", "tier.retract.failed_load")
def failed_load_told_again(original: Any, scheduler: Any, runs: list[Any]) -> None:
    """A failed load has a request count anew what it hits, however often it was admitted before."""
    for run in runs:
        run.confirmed = False
    original(scheduler, runs)


@wrong_input("retraction-forgets-tokens", "scheduler:Scheduler.retract", "tier.retract.aborted")
def retraction_forgets_tokens(original: Any, scheduler: Any, run: Any) -> None:
    """The tokens that a request has had are gone with its pages, until it comes to them again."""
    original(scheduler, run)
    run.tokens.clear()
    run.logits.clear()


@wrong_input("hash-of-what-is-before", "keys:Key.__eq__", "tier.keys.collision_behind")
def hash_of_what_is_before(original: Any, key: Key, other: object) -> bool:
    """A page is compared itself, and what is before it by its hash."""
    if not isinstance(other, Key) or not key.same_page(other):
        return False
    return (key.before is None) == (other.before is None) and hash(key.before) == hash(other.before)


@wrong_input("left-is-not-used", "admission:Admission.release", "tier.order.left_is_used")
def left_is_not_used(original: Any, admission: Any, run: Any) -> None:
    """What a request held that is aborted or retracted is as old as its admission."""
    used = {id(kept): kept.used for kept in run.kept.values()}
    held = list(run.kept.values())
    unfinished = run.decided < run.wanted
    original(admission, run)
    for kept in held:
        kept.used = used[id(kept)] if unfinished else kept.used


@wrong_input("on-its-way-is-a-miss", "admission:Admission.match", "tier.copies.on_their_way", "tier.copies.dropped_behind")
def on_its_way_is_a_miss(original: Any, admission: Any, keys: list[Key], prompt: int) -> Any:
    """What is on its way to the device is neither there nor on the host."""
    for at, key in enumerate(keys):
        kept = admission.device.find(key)
        if kept is not None and not kept.arrived:
            return original(admission, keys[:at], prompt)
    return original(admission, keys, prompt)


@wrong_input("empty-salt-is-none", "keys:Keys.chain", "tier.keys.salt_empty")
def empty_salt_is_none(original: Any, keys: Any, ids: Any, owner: Any) -> list[Key]:
    """A salt that is the empty text counts as none."""
    return original(keys, ids, replace(owner, salt=owner.salt or None))
