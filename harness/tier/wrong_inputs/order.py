"""Wrong orders, and what is told after a retraction, a failed load, or a collision that is not of the first page."""

from __future__ import annotations

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
