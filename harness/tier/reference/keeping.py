"""Keeping what was computed: whole chunks on the device, and their copies on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.tier.reference.executor import Copy, Executor
from harness.tier.reference.kept import Kept, TierIndex, pairs
from harness.tier.reference.run import Run
from harness.tier.reference.streams import Event


@dataclass
class Writing:
    """A write-back under way: the device's pages that it pins, and the host's that it fills."""

    copy: Copy
    sources: list[Kept]
    targets: list[Kept]


@dataclass
class Keeping:
    """Puts pages into the tiers."""

    executor: Executor
    device: TierIndex
    host: TierIndex
    moment: Callable[[], int]
    writing: list[Writing] = field(default_factory=list)

    def keep(self, run: Run, first: int, last: int, computed: Event) -> None:
        """Keep pages [first, last) of the run's prompt, whole at `computed`; what is kept under the same key already stays what it is."""
        now = self.moment()
        new: list[Kept] = []
        for at in range(first, last):
            if at in run.own and self.device.find(run.keys[at]) is None:
                kept = self.device.keep(run.keys[at], run.own.pop(at), now)
                self.device.pin(kept)
                run.kept[at] = kept
                new.append(kept)
        self.write_back(new, now, computed)

    def write_back(self, new: list[Kept], now: int, computed: Event) -> None:
        """Write them to the host, those that find a place there, once they are computed."""
        sources: list[Kept] = []
        targets: list[Kept] = []
        for kept in new:
            there = self.host.find(kept.key)
            if there is not None:
                self.host.use(there, now)
            elif self.host.size and self.host.room(1):
                target = self.host.keep(kept.key, self.host.take(1)[0], now)
                # Pinned until it is whole, lest the next of these pages take its place.
                self.host.pin(target)
                sources.append(kept)
                targets.append(target)
        if not sources:
            return
        going = pairs(self.host.groups, [kept.pages for kept in sources], [kept.pages for kept in targets])
        copy = self.executor.store(going, computed)
        for target in targets:
            target.copy = copy
        self.writing.append(Writing(copy, self.pin_sources(sources), targets))

    def pin_sources(self, sources: list[Kept]) -> list[Kept]:
        """They stay on the device until they are written."""
        for kept in sources:
            self.device.pin(kept)
        return sources

    def stored(self, writing: Writing) -> bool:
        """Whether a write-back that is over has written anything."""
        return writing.copy.failed is None

    def settle(self) -> None:
        """Take in the write-backs that are over: what was not stored is not kept there."""
        over = [writing for writing in self.writing if writing.copy.done()]
        self.writing = [writing for writing in self.writing if writing not in over]
        for writing in over:
            for source in writing.sources:
                self.device.unpin(source)
            for target in writing.targets:
                self.host.unpin(target)
                if self.stored(writing):
                    target.copy = None
                else:
                    self.host.forget(target)
