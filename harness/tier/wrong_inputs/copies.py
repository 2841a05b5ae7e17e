"""Wrong copies: what is found before it is there, or read from the wrong place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.tier.protocol import Tier
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("found-before-written", "kept:Kept.arrived", "tier.copies.slow_store")
def found_before_written(original: Any, kept: Any) -> bool:
    """A page is there as soon as its copy was submitted."""
    return True


@wrong_input("quiesce-waits-for-nothing", "engine:ReferenceServer.quiesce", "tier.copies.quiesced")
def quiesce_waits_for_nothing(original: Any, server: Any, timeout: float) -> None:
    """It returns at once."""


@wrong_input("source-free-with-its-request", "keeping:Keeping.write_back", "tier.copies.ends_while_written")
def source_free_with_its_request(original: Any, keeping: Any, *told: Any) -> None:
    """A page that is being written to the host stays on the device only as long as its request runs."""
    before = len(keeping.writing)
    original(keeping, *told)
    for writing in keeping.writing[before:]:
        for source in writing.sources:
            keeping.device.unpin(source)
        writing.sources.clear()


@wrong_input("failed-load-counted", "executor:Executor.load", "tier.copies.failed_load")
def failed_load_counted(original: Any, executor: Any, pairs: Mapping[str, Any], after: Any) -> Any:
    """A load that failed is taken for one that is done."""
    return replace(original(executor, pairs, after), failed=None)


@wrong_input("second-load-reads-the-first's", "executor:Executor.load", "tier.copies.overlapping")
def second_load_reads_the_firsts(original: Any, executor: Any, pairs: Mapping[str, Any], after: Any) -> Any:
    """A load that is submitted while another is under way reads the host pages of that one."""
    if executor.streams.load.queue:
        earlier = SOURCES[id(executor)]
        pairs = {
            group: [(earlier[group][at % len(earlier[group])], to) for at, (_, to) in enumerate(places)] for group, places in pairs.items()
        }
    SOURCES[id(executor)] = {group: [source for source, _ in places] for group, places in pairs.items()}
    return original(executor, pairs, after)


SOURCES: dict[int, dict[str, list[int]]] = {}
"""By executor and group, what the last load read."""


@wrong_input("first-page-not-written", "keeping:Keeping.write_back", "tier.eviction.host_has_heads")
def first_page_not_written(original: Any, keeping: Any, new: list[Any], *told: Any) -> None:
    """The first page of a prompt is not written to the host."""
    original(keeping, [kept for kept in new if kept.key.depth], *told)


@wrong_input("tail-loaded-twice", "admission:Admission.match", "tier.life.end_without_start")
def tail_loaded_twice(original: Any, admission: Any, keys: list[Any], prompt: int) -> Any:
    """Behind a page that only the host has, all others are loaded too, over those that the device keeps."""
    found = original(admission, keys, prompt)
    first = min(found.host, default=len(found))
    for at in [at for at in found.device if at > first]:
        there = admission.host.find(keys[at])
        if there is not None and there.arrived and there.key == keys[at]:
            del found.device[at]
            found.host[at] = there
    return found


@wrong_input("host-keeps-the-tail", "kept:TierIndex.victims", "tier.eviction.host_tail_first")
def host_keeps_the_tail(original: Any, index: Any) -> list[Any]:
    """On the host, of pages used at one moment the first of a prompt goes first."""
    victims = original(index)
    return sorted(victims, key=lambda kept: (kept.used, kept.key.depth)) if index.tier is Tier.HOST else victims
