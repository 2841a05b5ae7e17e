"""What recorded runs of a lane reached: by engine and claim group, how many claims held, and which did not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ci.assign import selected
from ci.collect import collect
from ci.items import Item
from ci.lanes import Lane, base_of
from harness.core.verdict import Verdict
from harness.report.runs import RecordedRun, Result

HOLDS = (Verdict.PASS, Verdict.KNOWN)
"""Verdicts that count: the engine was held to the claim, and came out as it is known to."""

Place = tuple[str, str]
"""Engine label with profile (`duplex/reference@cpu`), and claim group (`duplex.isolation`)."""


class WrongLane(ValueError):
    """A results file holds a test that the lane does not take; the text names the file and the test."""


@dataclass(frozen=True)
class Reached:
    """The results of one lane and environment, each test once; of a test that is in several files, one that does not hold decides.

    absent: how many tests the lane takes and the results lack, by engine with profile, without options, and claim group.
    """

    results: Mapping[Place, Sequence[Result]]
    absent: Mapping[Place, int]

    def count(self, place: Place) -> int:
        """How many claims of the place hold."""
        return sum(result.verdict in HOLDS for result in self.results.get(place, ()))

    def counts(self) -> dict[str, dict[str, int]]:
        """Engine to claim group to how many hold, where any does."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for place in sorted(self.results):
            if self.count(place):
                found[place[0]][place[1]] = self.count(place)
        return dict(found)

    def why(self, place: Place) -> str:
        """Why others of the place do not hold: their verdicts and reasons, with how many there are of each, and how many did not run."""
        others = Counter((str(r.verdict), r.reason) for r in self.results.get(place, ()) if r.verdict not in HOLDS)
        told = [f"{number} {verdict}" + (f" ({reason})" if reason else "") for (verdict, reason), number in sorted(others.items())]
        engine, profile = place[0].rpartition("@")[::2]
        absent = self.absent.get((f"{engine.partition(':')[0]}@{profile}", place[1]), 0)
        return "; ".join(told + ([f"{absent} not among the results"] if absent else []))


def lane_items(lane: Lane, environment: str) -> list[Item]:
    """What the lane takes in the environment, as collected from the suites. Raises CollectError."""
    return [item for item in selected(collect(), lane.marks) if item.environment == base_of(environment)]


def nodeid(result: Result) -> str:
    """The test as collection names it: on the engine without its options."""
    return f"{result.test.partition('[')[0]}[{result.engine}@{result.profile}]"


def reached(runs: Iterable[RecordedRun], items: Iterable[Item], lane: str) -> Reached:
    """The runs' results, less those of planted faults. Raises WrongLane for a test that is not one of `items`."""
    there = {item.nodeid: (item.boot, item.group) for item in items}
    decided: dict[str, Result] = {}
    for run in runs:
        for result in (result for result in run.results if not result.fault):
            if nodeid(result) not in there:
                raise WrongLane(f"{run.path}: {result.test} is no test that {lane} takes; give the results of that lane and environment")
            if result.test not in decided or result.verdict not in HOLDS:
                decided[result.test] = result
    places: dict[Place, list[Result]] = defaultdict(list)
    for result in decided.values():
        places[result.label, result.group].append(result)
    came = {nodeid(result) for result in decided.values()}
    return Reached(places, Counter(place for name, place in there.items() if name not in came))
