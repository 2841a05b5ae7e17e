"""Which attempt of a shard counts, and which reports of each test: the rule of merging. `ci/merge.py` says it in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ci.attempts import Attempt, Entry, verdict
from harness.core.verdict import Verdict

ORDER = (0, 5, 1, 4, 3, 2)
"""pytest's exit statuses, the worst last: passed, nothing was run, failed, wrong use, broken, interrupted."""

_FAILING = {"failed", *(str(v) for v in Verdict if v.fails_the_run)}


def worst(statuses: Iterable[int]) -> int:
    """The exit status of a suite whose shards ended with these; what pytest does not know counts as broken. 5 for none."""
    return max((s if s in ORDER else 3 for s in statuses), key=ORDER.index, default=5)


@dataclass
class Shard:
    """One shard: its attempts, the one that counts, and which reports of each test do.

    `missing`: why tests of it may be missing; empty where an attempt is complete. `trouble`: a line for each thing that fails the merge.
    """

    name: str
    attempts: list[Attempt]
    counted: Attempt | None = None
    tests: dict[str, tuple[Entry, ...]] = field(default_factory=dict)
    borrowed: set[str] = field(default_factory=set)
    missing: str = ""
    trouble: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        """As its pytest would exit."""
        failed = any(verdict(reports) in _FAILING for reports in self.tests.values())
        statuses = [1] if self.trouble or failed else []
        statuses += [3] if self.missing or self.counted is None or self.counted.status is None else [self.counted.status]
        return worst(statuses)


def choose(name: str, attempts: Sequence[Attempt], expected: Collection[str] | None = None) -> Shard:
    """What counts of a shard's attempts, which are given in their order."""
    complete = [attempt for attempt in attempts if attempt.complete]
    shard = Shard(name, list(attempts))
    if complete:
        shard.counted = complete[-1]
    else:
        shard.counted = max(attempts, key=lambda attempt: len(attempt.tests), default=None)
        shard.missing = f"no attempt is complete: {'; '.join(a.flaw for a in attempts) or 'none left a report log'}"
        shard.trouble.append(f"{name}: {shard.missing}")
    # The one that counts first, so that its order is the order.
    for attempt in sorted(attempts, key=lambda attempt: attempt is not shard.counted):
        for nodeid in attempt.tests:
            if nodeid not in shard.tests:
                _choose_reports(shard, nodeid)
    lost = [nodeid for nodeid in expected or () if nodeid not in shard.tests]
    if lost:
        shard.missing = shard.missing or f"a complete attempt lacks {len(lost)} tests, such as {lost[0]}"
        shard.trouble.append(f"{name}: {len(lost)} of its {len(expected or ())} tests have no result, such as {lost[0]}")
    return shard


def _choose_reports(shard: Shard, nodeid: str) -> None:
    """Those of the attempt that counts, unless it has none, or another attempt saw the test fail."""
    said = [(attempt, attempt.tests[nodeid]) for attempt in shard.attempts if nodeid in attempt.tests]
    own = next((entry for entry in said if entry[0] is shard.counted), None)
    failing = next((entry for entry in said if verdict(entry[1]) in _FAILING), None)
    chosen = own or said[-1]
    if failing and verdict(chosen[1]) not in _FAILING:
        chosen = failing
    shard.tests[nodeid] = chosen[1]
    if chosen is not own:
        shard.borrowed.add(nodeid)
    if len({verdict(reports) for _, reports in said}) > 1:
        told = ", ".join(f"{verdict(reports)} in {attempt.log}" for attempt, reports in said)
        shard.trouble.append(f"{shard.name}: attempts disagree on {nodeid}: {told}; merged as {verdict(chosen[1])}")
    elif own is None and not shard.missing:
        shard.trouble.append(f"{shard.name}: the attempt that counts lacks {nodeid}, which {chosen[0].log} has")
