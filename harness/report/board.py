"""All results of many runs in one order: what stands now for each claim on each engine, and what stood before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property

from harness.core.claims import Claim
from harness.core.verdict import Verdict
from harness.report.diff import Change, change_of
from harness.report.faces import ORDER, worst
from harness.report.runs import RecordedRun, Result
from harness.report.sessions import Session

KINDS = ("duplex", "transfer", "connector", "tier")
"""The order of kinds on a page; one that is not among them comes last."""


@dataclass(frozen=True)
class Seen:
    """One result and the run that it is of."""

    result: Result
    session: Session

    @property
    def day(self) -> str:
        """When it was judged: `2026-12-01 01:10`, UTC; empty where no clock was recorded."""
        if not self.result.start:
            return self.session.started[:16].replace("T", " ")
        return f"{datetime.fromtimestamp(self.result.start, timezone.utc):%Y-%m-%d %H:%M}"


@dataclass
class Cell:
    """A claim on an engine. `now`: the newest result of each test of it; `before`: the others, newest first."""

    now: list[Seen] = field(default_factory=list)
    before: list[Seen] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The worst of what stands now."""
        return worst(seen.result.verdict for seen in self.now)

    @property
    def shown(self) -> Seen:
        """The result that the verdict is of."""
        return next(seen for seen in self.now if seen.result.verdict is self.verdict)

    @property
    def change(self) -> Change | None:
        """Against the result before, as `assay report diff` judges it; None where nothing changed or nothing was before."""
        return change_of(self.before[0].result, self.shown.result) if self.before else None


@dataclass(frozen=True)
class ClaimTold:
    """A claim as records tell it: text that may be anything. `where` is `file:line` of its test, empty where nobody says."""

    id: str
    level: str
    sentence: str
    source: str = ""
    where: str = ""
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Board:
    """Everything that the pages show, in the order in which they show it."""

    sessions: tuple[Session, ...]
    cells: dict[tuple[str, str], Cell]
    """(claim, engine label) to what is known of it."""
    planted: tuple[Seen, ...]
    """Results under planted faults: they say nothing of an engine, and all of the checks."""
    claims: dict[str, ClaimTold]
    labels: tuple[str, ...]

    @property
    def kinds(self) -> list[str]:
        """Kinds that have a result."""
        found = {label.partition("/")[0] for label in self.labels}
        return sorted(found, key=lambda kind: (KINDS.index(kind) if kind in KINDS else len(KINDS), kind))

    def counts(self, label: str) -> Counter[Verdict]:
        """How many claims have each verdict on an engine."""
        return Counter(cell.verdict for (_, engine), cell in self.cells.items() if engine == label)

    @cached_property
    def failures(self) -> list[Seen]:
        """What fails the run, the worst verdict first, then by claim and engine."""
        found = [seen for cell in self.cells.values() for seen in cell.now if seen.result.verdict.fails_the_run]
        return sorted(found, key=lambda seen: (ORDER.index(seen.result.verdict), seen.result.claim, seen.result.column))

    @cached_property
    def changes(self) -> list[Cell]:
        """Cells whose verdict is another than in the run before, regressions first."""
        found = [cell for cell in self.cells.values() if cell.change]
        return sorted(found, key=lambda cell: (not (cell.change and cell.change.is_regression), cell.shown.result.claim))

    def unavailable(self) -> dict[str, str]:
        """Engines that a run asked for and that no run judged, with the reason."""
        told = {label: why for session in self.sessions for label, why in session.unavailable.items()}
        return {label: why for label, why in sorted(told.items()) if label not in self.labels}


def lay_out(runs: Sequence[RecordedRun], made: Iterable[Claim] = ()) -> Board:
    """The board of any number of runs: shards, engines, weeks, machines. The newest result of a test on an engine stands.

    `made`: the claims of this checkout, for what records of schema 1 do not say of theirs. Raises UnreadableRun for a session record that
    is forged.
    """
    sessions = [Session(run) for run in runs]
    seen = [Seen(result, session) for run, session in zip(runs, sessions, strict=True) for result in run.results]
    # Runs of one second, or without clocks, stand in the order given.
    seen.sort(key=lambda one: one.result.start, reverse=True)
    cells: dict[tuple[str, str], Cell] = defaultdict(Cell)
    tests: set[tuple[str, str]] = set()
    for one in seen:
        if not one.result.fault:
            key = (one.result.test, one.result.column)
            cell = cells[one.result.claim, one.result.column]
            (cell.before if key in tests else cell.now).append(one)
            tests.add(key)
    labels = sorted({label for _, label in cells})
    order = sorted(sessions, key=lambda session: session.started, reverse=True)
    planted = tuple(one for one in seen if one.result.fault)
    return Board(tuple(order), {key: cells[key] for key in sorted(cells)}, planted, _claims(seen, made), tuple(labels))


def _claims(seen: Sequence[Seen], made: Iterable[Claim]) -> dict[str, ClaimTold]:
    """Each claim as its newest result says it."""
    written = {claim.id: claim for claim in made}
    found: dict[str, ClaimTold] = {}
    for one in seen:
        if one.result.claim not in found:
            found[one.result.claim] = _claim(one, written.get(one.result.claim))
    return dict(sorted(found.items()))


def _claim(seen: Seen, written: Claim | None) -> ClaimTold:
    result, told = seen.result, seen.session.claims.get(seen.result.claim)
    if told is not None:
        requires = told.get("requires")
        asked = tuple(map(str, requires)) if isinstance(requires, list) else ()
        return ClaimTold(result.claim, result.level, result.sentence, str(told.get("source") or ""), str(told.get("where") or ""), asked)
    if written is not None:
        return ClaimTold(result.claim, result.level, result.sentence, written.source, written.where, written.requires)
    return ClaimTold(result.claim, result.level, result.sentence)
