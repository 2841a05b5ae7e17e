"""What one tier keeps: the pages of its pool, which of them hold what, and which of those goes when a place is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.tier.protocol import Tier
from harness.tier.reference.executor import Copy
from harness.tier.reference.keys import Key


@dataclass(eq=False)
class Kept:
    """A page of tokens in one tier: a physical page for each group.

    `pages` are in the order of the groups. `pins` counts who needs it where it is: requests that hold it, and copies that read or fill it.
    `used` is the moment when it was used last. `copy` brings its bytes, as long as that is under way.
    """

    key: Key
    pages: tuple[int, ...]
    used: int
    pins: int = 0
    copy: Copy | None = None
    forgotten: bool = False

    @property
    def arrived(self) -> bool:
        """Whether its bytes are whole."""
        return self.copy is None


class TierIndex:
    """The pool of `tier`, of `size` physical pages, of which each page of tokens takes one for each of `groups`."""

    def __init__(self, tier: Tier, size: int, groups: Sequence[str]) -> None:
        self.tier, self.size, self.groups = tier, size, tuple(groups)
        self.free = list(range(size - 1, -1, -1))
        self._kept: dict[Key, Kept] = {}

    def __iter__(self) -> Iterator[Kept]:
        return iter(list(self._kept.values()))

    @property
    def held(self) -> int:
        """Physical pages that are neither free nor kept: those of running requests."""
        return self.size - len(self.free) - len(self.groups) * len(self._kept)

    @property
    def pins(self) -> int:
        """Of all that is kept."""
        return sum(kept.pins for kept in self._kept.values())

    def name(self, key: Key) -> Key:
        """What this tier keeps a page under."""
        return key

    def find(self, key: Key) -> Kept | None:
        """What is kept under the key."""
        return self._kept.get(self.name(key))

    def keep(self, key: Key, pages: tuple[int, ...], now: int, copy: Copy | None = None) -> Kept:
        """Keep pages that were taken before; nothing may be kept under that key yet."""
        kept = Kept(key, pages, now, copy=copy)
        self._kept[self.name(key)] = kept
        return kept

    def use(self, kept: Kept, now: int) -> None:
        """It was used now."""
        kept.used = now

    def room(self, blocks: int) -> bool:
        """Let go until pages for `blocks` pages of tokens are free; False if too much is pinned, and then nothing has gone."""
        short = blocks * len(self.groups) - len(self.free)
        if short <= 0:
            return True
        victims = self.victims()
        needed = -(-short // len(self.groups))
        if len(victims) < needed:
            return False
        for kept in victims[:needed]:
            self.forget(kept)
        return True

    def victims(self) -> list[Kept]:
        """What may go, the first to go first."""
        return sorted((kept for kept in self._kept.values() if not kept.pins and kept.arrived), key=self.rank)

    @staticmethod
    def rank(kept: Kept) -> tuple[int, int]:
        """The longest unused goes first, and of those used at one moment the one farthest from the start of its prompt."""
        return kept.used, -kept.key.depth

    def take(self, blocks: int) -> list[tuple[int, ...]]:
        """Free pages for `blocks` pages of tokens; `room` was made before."""
        return [tuple(self.free.pop() for _ in self.groups) for _ in range(blocks)]

    def give(self, pages: Sequence[int]) -> None:
        """Pages that nobody needs any more."""
        self.free.extend(pages)

    def forget(self, kept: Kept) -> None:
        """Nobody finds it any more; its pages are free once nobody pins it."""
        if self._kept.get(self.name(kept.key)) is kept:
            del self._kept[self.name(kept.key)]
            kept.forgotten = True
            if not kept.pins:
                self.give(kept.pages)

    def pin(self, kept: Kept) -> None:
        """It stays until it is unpinned as often."""
        kept.pins += 1

    def unpin(self, kept: Kept) -> None:
        """One who needed it no longer does."""
        kept.pins -= 1
        if kept.forgotten and not kept.pins:
            self.give(kept.pages)


def pairs(
    groups: Sequence[str], sources: Sequence[tuple[int, ...]], targets: Sequence[tuple[int, ...]]
) -> dict[str, list[tuple[int, int]]]:
    """By group, which physical page goes to which, of as many pages of tokens on either side."""
    made: dict[str, list[tuple[int, int]]] = {group: [] for group in groups}
    for source, target in zip(sources, targets, strict=True):
        for group, here, there in zip(groups, source, target, strict=True):
            made[group].append((here, there))
    return made
