"""Wrong ends: what a request that is aborted holds, leaves behind, or takes from others."""

from __future__ import annotations

from typing import Any

from harness.tier.protocol import Completion, Outcome
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input(
    "abort-keeps-pages",
    "scheduler:Scheduler.end",
    "tier.abort.every_step",
    "tier.abort.loading",
    "tier.abort.write_back",
    "tier.abort.decode",
    "tier.leaks.capacity",
)
def abort_keeps_pages(original: Any, scheduler: Any, run: Any, outcome: Outcome, error: str | None = None) -> Completion:
    """An aborted request does not give back one of the pages that are its alone."""
    if outcome is Outcome.ABORTED and run.own:
        run.own.popitem()
    return original(scheduler, run, outcome, error)


@wrong_input("aborted-one-in-the-way", "scheduler:Scheduler.admit", "tier.abort.queued")
def aborted_one_in_the_way(original: Any, scheduler: Any) -> None:
    """Of a queue whose first did not fit, those behind it are never looked at again."""
    blocked = BLOCKED.setdefault(id(scheduler), set())
    if scheduler.waiting and scheduler.waiting[0].handle in blocked:
        return
    original(scheduler)
    blocked.update(run.handle for run in scheduler.waiting)


BLOCKED: dict[int, set[int]] = {}
"""By scheduler, the handles that once waited."""


@wrong_input("abort-unpins-twice", "scheduler:Scheduler.end", "tier.abort.shared_prefix")
def abort_unpins_twice(original: Any, scheduler: Any, run: Any, outcome: Outcome, error: str | None = None) -> Completion:
    """An aborted request gives back the pages that it shares, once for itself and once for another that holds them."""
    if outcome is Outcome.ABORTED:
        for kept in run.kept.values():
            if kept.pins > 1:
                scheduler.device.unpin(kept)
    return original(scheduler, run, outcome, error)


@wrong_input("abort-after-the-end", "engine:ReferenceServer.abort", "tier.abort.done")
def abort_after_the_end(original: Any, server: Any, handle: int) -> None:
    """A request that is done, and is aborted before its result is taken, counts as aborted."""
    original(server, handle)
    server._done[handle] = Completion(Outcome.ABORTED)
