"""Least counts from a recorded run, and the runs that give none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ci.items import Item
from ci.least_counts import Committed
from ci.least_reached import Reached, nodeid
from harness.report.runs import RecordedRun


class Refused(ValueError):
    """The run gives no least counts; the text says why, and what to give instead."""


def committed_by(
    runs: Sequence[RecordedRun], found: Reached, items: Iterable[Item], before: Committed, *, lower: bool = False, although: str = ""
) -> Committed:
    """What the runs commit their lane to. `although`: why runs that hold fewer tests than `items` are recorded all the same.

    Raises Refused for a run that was ended early, failed, had a fault planted, or is partial; and for a count below that of `before`,
    unless `lower`.
    """
    for run in runs:
        _check_run(run)
    absent = sorted({item.nodeid for item in items} - {nodeid(result) for run in runs for result in run.results})
    if absent and not although:
        said = f"{len(absent)} of the lane's tests are not in the results, {absent[0]} among them"
        raise Refused(f"{said}; run all of it, or say --although WHY")
    counts = found.counts()
    if not counts:
        raise Refused("no claim holds in the results: there is nothing to commit to")
    lowered = [
        f"{engine} {group}: {counts.get(engine, {}).get(group, 0)}, and {count} is committed"
        for engine, groups in before.counts.items()
        for group, count in groups.items()
        if counts.get(engine, {}).get(group, 0) < count
    ]
    if lowered and not lower:
        raise Refused("\n".join(["these counts would be lowered; say --lower if they are to be:", *lowered]))
    return Committed(counts, _origin(runs) + (f"; {although}" if although else ""))


def _check_run(run: RecordedRun) -> None:
    if not run.session:
        raise Refused(f"{run.path}: it was ended before it could write its session; give a run that came to its end")
    fault = next((result.fault for result in run.results if result.fault), None)
    if fault or run.session.get("proof"):
        raise Refused(f"{run.path}: a fault was planted ({fault or '--prove'}); give a run without one")
    failed = [result for result in run.results if result.verdict.fails_the_run]
    if failed:
        raise Refused(f"{run.path}: it failed: {len(failed)} verdicts, {failed[0].verdict} of {failed[0].test} among them")
    if not run.results:
        raise Refused(f"{run.path}: no results")


def _origin(runs: Sequence[RecordedRun]) -> str:
    """`2026-12-01, commit 16c929a2d0ff`."""
    days = sorted({str(run.session.get("started", ""))[:10] for run in runs})
    commits = sorted({_short(str(run.session.get("commit", ""))) for run in runs})
    return f"{' and '.join(days)}, commit {' and '.join(commits)}"


def _short(commit: str) -> str:
    """Twelve digits, and the + of a checkout with changes."""
    return (commit[:12] + ("+" if commit.endswith("+") else "")) if commit else "unknown"
