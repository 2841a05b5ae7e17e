"""Admitting a request: what of its prompt is kept somewhere, places for the rest, and the copies back from the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.tier.protocol import Policy, TierHits
from harness.tier.reference.executor import Copy, Executor
from harness.tier.reference.intake import blocks
from harness.tier.reference.kept import Kept, TierIndex, pairs
from harness.tier.reference.keys import Key
from harness.tier.reference.run import Run


@dataclass
class Found:
    """What a prompt hits: by its place from the start, a page that is on the device, or one that only the host has."""

    device: dict[int, Kept] = field(default_factory=dict)
    host: dict[int, Kept] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.device) + len(self.host)

    def cut(self, count: int) -> None:
        """Keep the first `count`."""
        for side in (self.device, self.host):
            for at in [at for at in side if at >= count]:
                del side[at]


@dataclass
class Admission:
    """Gives requests their pages, and takes them back."""

    policy: Policy
    executor: Executor
    device: TierIndex
    host: TierIndex
    moment: Callable[[], int]
    """A new one, later than all before."""
    loading: list[tuple[Copy, list[Kept]]] = field(default_factory=list)
    """Copies under way, with the host's pages that they read."""

    def match(self, keys: list[Key], prompt: int) -> Found:
        """The longest run of pages from the start, on the device or whole on the host, to a multiple of a chunk before the last token."""
        found = Found()
        for at, key in enumerate(keys):
            on_device, on_host = self.device.find(key), self.host.find(key)
            if on_device is not None:
                found.device[at] = on_device
            elif on_host is not None and on_host.arrived:
                found.host[at] = on_host
            else:
                break
        found.cut(self.reach(len(found), prompt))
        return found

    def reach(self, pages: int, prompt: int) -> int:
        """How many of `pages` pages a prompt of that many tokens may skip."""
        policy = self.policy
        tokens = min(pages * policy.page, prompt - 1)
        return tokens // policy.chunk * policy.chunk // policy.page

    def admit(self, run: Run) -> bool:
        """Give it its pages; False, and nothing has changed, where they cannot be had."""
        found = self.match(run.keys, len(run.ids))
        total = blocks(len(run.ids), run.wanted, self.policy.page)
        self.pin(found)
        if not self.make_room(found, total - len(found.device)):
            self.unpin(found)
            return False
        now = self.moment()
        self.use(run.keys[: len(found)], now)
        run.running, run.decided = True, 0
        run.kept = dict(found.device)
        run.loads = [kept.copy for kept in found.device.values() if kept.copy is not None]
        places = self.device.take(total - len(found.device))
        if found.host:
            self.load(run, found, places[: len(found.host)], now)
        run.own = dict(enumerate(places[len(found.host) :], len(found)))
        run.computed = len(found) * self.policy.page
        self.tell(run, found)
        return True

    def pin(self, found: Found) -> None:
        """What was found stays until it is used, or not."""
        for kept in found.device.values():
            self.device.pin(kept)
        for kept in found.host.values():
            self.host.pin(kept)

    def make_room(self, found: Found, count: int) -> bool:
        """Places on the device for `count` pages of tokens, none of them from what was `found`, which is pinned."""
        return self.device.room(count)

    def tell(self, run: Run, found: Found) -> None:
        """What its completion will say was cached: what its first admission found."""
        if run.told is None:
            page = self.policy.page
            run.told = TierHits(len(found.device) * page, len(found.host) * page)

    def unpin(self, found: Found) -> None:
        """What was found is not used after all."""
        for kept in found.device.values():
            self.device.unpin(kept)
        for kept in found.host.values():
            self.host.unpin(kept)

    def use(self, keys: list[Key], now: int) -> None:
        """These pages are used, in whichever tier they are kept."""
        for tier in (self.device, self.host):
            for key in keys:
                kept = tier.find(key)
                if kept is not None:
                    tier.use(kept, now)

    def load(self, run: Run, found: Found, places: list[tuple[int, ...]], now: int) -> None:
        """Bring the host's pages back, once all that was launched is done with the places they go to."""
        sources = list(found.host.values())
        coming = pairs(self.device.groups, [kept.pages for kept in sources], places)
        copy = self.executor.load(coming, self.executor.compute_event())
        self.loading.append((copy, sources))
        run.loads.append(copy)
        for (at, kept), pages in zip(found.host.items(), places, strict=True):
            run.kept[at] = self.device.keep(kept.key, pages, now, copy)
            self.device.pin(run.kept[at])

    def release(self, run: Run) -> None:
        """Take back all that it holds. What is kept of it was used now."""
        self.use([kept.key for kept in run.kept.values()], self.moment())
        for kept in run.kept.values():
            self.device.unpin(kept)
        for pages in run.own.values():
            self.device.give(pages)
        run.kept, run.own, run.loads = {}, {}, []
        run.running, run.flying, run.pending, run.computed = False, None, None, 0

    def settle(self) -> None:
        """Take in the loads that are over, and let go of what they read. The pages of one that failed are kept nowhere any more."""
        over = [entry for entry in self.loading if entry[0].done()]
        self.loading = [entry for entry in self.loading if entry not in over]
        for copy, sources in over:
            self.loaded(copy, sources)
        for kept in self.device:
            if kept.copy is not None and kept.copy.done():
                if kept.copy.failed:
                    self.device.forget(kept)
                else:
                    kept.copy = None

    def loaded(self, copy: Copy, sources: list[Kept]) -> None:
        """Let go of the host's pages that a load has read."""
        for kept in sources:
            self.host.unpin(kept)
            if copy.failed:
                self.host.forget(kept)
