"""Wrong evictions: what goes that should stay, what stays that should go, and places that are miscounted."""

from __future__ import annotations

from typing import Any

from harness.tier.protocol import Tier
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("first-in-first-out", "kept:TierIndex.use", "tier.eviction.least_recent", "tier.eviction.ended_in_use")
def first_in_first_out(original: Any, index: Any, kept: Any, now: int) -> None:
    """A page's age is counted from when it was kept, whoever used it since."""


@wrong_input(
    "host-first-in-first-out", "kept:TierIndex.use", "tier.eviction.host_smaller", "tier.eviction.thrashing", "tier.schedule.short"
)
def host_first_in_first_out(original: Any, index: Any, kept: Any, now: int) -> None:
    """On the host, a page's age is counted from when it was written."""
    if index.tier is Tier.DEVICE:
        original(index, kept, now)


@wrong_input("drops-what-runs", "engine:ReferenceServer.drop_device", "tier.eviction.running_pinned", "tier.life.dropped_while_running")
def drops_what_runs(original: Any, server: Any) -> None:
    """All that the device keeps is let go, and its places are free, whoever holds it."""
    device = server._scheduler.device
    for kept in device:
        if kept.pins:
            device.give(kept.pages)
        device.forget(kept)


@wrong_input("a-page-to-spare", "admission:blocks", "tier.eviction.exact_fit")
def a_page_to_spare(original: Any, prompt: int, new: int, page: int) -> int:
    """A request is given a page that it has no use for."""
    return original(prompt, new, page) + 1


@wrong_input("a-page-too-few", "intake:blocks", "tier.eviction.page_short")
def a_page_too_few(original: Any, prompt: int, new: int, page: int) -> int:
    """What a request needs is counted one page short, when it is submitted."""
    return original(prompt, new, page) - 1
