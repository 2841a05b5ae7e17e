"""Which worker runs what, where some tests need cards: workers that lease, units of tests, and the rule that hands units out.

A worker leases its cards once, for its life. So a worker with k cards is given units of k cards, then units without cards; it is ended
when others need its cards. The largest numbers go first, and none is passed by a smaller one: as numbers of cards are powers of two, a
unit waits only while fewer cards are free than it needs, and no card idles beside it. Knows nothing of pytest or of processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from harness.core.partition import Job, partition

BOOT_SECONDS = 30.0
"""What one more boot costs, where a group of tests is split: a worker's start and an engine's, which took 0.3 to 77 s in the runs under
ci/results (medians: 28 s of engines that load a 7b model). A part that is worth less is not split off."""


@dataclass(frozen=True)
class Unit:
    """Tests that one worker runs, one after the other, on one boot of an engine. `cards`: how many they need, 0 for none."""

    name: str
    tests: tuple[str, ...]
    cards: int = 0
    seconds: float = 0.0


class Word(Enum):
    """In place of a unit: HOLD, since cards may become free; END, since there is nothing for this worker."""

    HOLD = "hold"
    END = "end"


def units_of(groups: Iterable[Unit], seconds: dict[str, float], cards: int, workers: int) -> list[Unit]:
    """The groups, those with cards split into parts for several workers where that pays; parts of `a` are called `a #1`, `a #2`.

    `seconds`: of each test, by name; where no test has any, all count the same and a boot costs nothing. `cards`: how many there are.
    """
    groups = list(groups)
    timed = any(seconds.get(test) for group in groups if group.cards for test in group.tests)
    made = [group for group in groups if not group.cards]
    for number in sorted({group.cards for group in groups if group.cards}):
        alike = [group for group in groups if group.cards == number]
        parts = min(cards // number, workers)
        if timed:
            worth = sum(seconds.get(test, 0.0) for group in alike for test in group.tests) // BOOT_SECONDS
            parts = min(parts, max(len(alike), int(worth)))
        made += _split(alike, seconds if timed else {}, max(1, parts))
    return made


def _split(groups: Sequence[Unit], seconds: dict[str, float], parts: int) -> list[Unit]:
    boot = BOOT_SECONDS if seconds else 0.0
    jobs = [Job(test, seconds.get(test, 0.0) if seconds else 1.0, group.name, boot) for group in groups for test in group.tests]
    part_of = {job.name: number for number, part in enumerate(partition(jobs, parts)) for job in part}
    made = []
    for group in groups:
        held: dict[int, list[str]] = {}
        for test in group.tests:
            held.setdefault(part_of[test], []).append(test)
        for number, tests in enumerate(held.values(), start=1):
            name = group.name if len(held) == 1 else f"{group.name} #{number}"
            made.append(replace(group, name=name, tests=tuple(tests), seconds=sum(seconds.get(test, 0.0) for test in tests)))
    return made


class Dispatcher:
    """Hands units out. `cards` is how many there are; `workers` are names of whatever kind, in the order in which they are given work."""

    def __init__(self, units: Iterable[Unit], cards: int, workers: Iterable[Hashable]) -> None:
        self.waiting = sorted(units, key=lambda unit: (-unit.cards, -unit.seconds, unit.name) if unit.cards else (0, 0.0, ""))
        # What needs more than there are is handed out too: the worker's lease says what is lacking.
        self.cards = max([cards, *(unit.cards for unit in self.waiting)])
        self.leased: dict[Hashable, int] = {}
        """Workers that hold cards, or are about to, and how many; also those that were told to end, until they are gone."""
        self._fresh: list[Hashable] = list(workers)[: self._most_leases()]

    @property
    def free(self) -> int:
        """Cards that no worker holds."""
        return self.cards - sum(self.leased.values())

    def next(self, worker: Hashable, *, idle: bool) -> Unit | Word:
        """What this worker does after what it has. One that is not `idle` is never told to hold: it may wait for this word to go on."""
        held, head = self.leased.get(worker), self.waiting[0] if self.waiting and self.waiting[0].cards else None
        if head is None:
            return self._hand_out(worker, next(iter(self.waiting), None))
        if held is not None:
            own = next((unit for unit in self.waiting if unit.cards == held), None)
            if own is None and not self._fresh and held >= head.cards:
                own = head  # nobody else is left to lease anew, so the cards that are too many idle
            return self._hand_out(worker, own)
        if worker not in self._fresh:
            return self._hand_out(worker, next((unit for unit in self.waiting if not unit.cards), None))
        if head.cards <= self.free:
            self._fresh.remove(worker)
            self.leased[worker] = head.cards
            return self._hand_out(worker, head)
        return Word.HOLD if idle else self._hand_out(worker, None)

    def came(self, worker: Hashable) -> None:
        """A worker takes the place of one that crashed: it may lease."""
        self._fresh.append(worker)

    def gone(self, worker: Hashable, left: Iterable[Unit] = ()) -> None:
        """The worker's process ended, and its cards are free; what it `left` undone waits again."""
        self.leased.pop(worker, None)
        if worker in self._fresh:
            self._fresh.remove(worker)
        self.waiting = [*left, *self.waiting]
        self.waiting.sort(key=lambda unit: -unit.cards)

    def _hand_out(self, worker: Hashable, unit: Unit | None) -> Unit | Word:
        if unit is not None:
            self.waiting.remove(unit)
            return unit
        if worker in self._fresh:
            self._fresh.remove(worker)
        return Word.END

    def _most_leases(self) -> int:
        """How many workers may come to lease cards. They are given nothing else before: a test without cards might start CUDA."""
        wanted = Counter(unit.cards for unit in self.waiting if unit.cards)
        return sum(min(units, self.cards // number) for number, units in wanted.items())
