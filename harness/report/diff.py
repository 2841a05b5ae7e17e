"""Two recorded runs beside each other: what a person must look at, what got better, and what only changed.

Compared per claim and engine label. Several runs on one side are repeats: the worst verdict stands, in the order of `_WORST`. What was run
with a fault planted says nothing of an engine and is left out. The changes, by OLD in rows and NEW in columns; `broken` is FAIL,
INCONCLUSIVE, VACUOUS or ERROR, and what stands in capitals is a regression:

    OLD           PASS     KNOWN    broken        UNSUPPORTED               UNAVAILABLE   absent
    PASS          -        LOST     NEW FAILURE   LOST, declared: withdrawn LOST          LOST
    KNOWN         fixed    -        NEW FAILURE   LOST, declared: withdrawn LOST          LOST
    broken        fixed    changed  changed       changed                   changed       changed
    UNSUPPORTED   gained   gained   NEW FAILURE   -                         changed       -
    UNAVAILABLE   gained   gained   NEW FAILURE   changed                   -             -
    absent        gained   gained   NEW FAILURE   -                         -             -

*Declared*: the reason begins with a capability of the kind, so engines.toml (or the adapter) says that the engine does not offer it any
more, and that declaration is read by whoever reviews it. A claim that no engine has in NEW and that the suites no longer make is listed
as gone, and is no regression; one that they still make is LOST like any other, and so is each where a run of NEW was cut short, which is
to say that it has no session line. An engine that is gone is one regression if OLD had it keep anything; of one that is new only the
failures are told. Figures: see `harness.report.diff_figures`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from harness.core.capabilities import VOCABULARY
from harness.core.verdict import Verdict
from harness.report.diff_figures import Move, Movement, moves
from harness.report.runs import RecordedRun, Result, UnreadableRun

Key = tuple[str, str]
"""Claim and engine label."""

_WORST = (
    Verdict.FAIL,
    Verdict.ERROR,
    Verdict.INCONCLUSIVE,
    Verdict.VACUOUS,
    Verdict.KNOWN,
    Verdict.PASS,
    Verdict.UNSUPPORTED,
    Verdict.UNAVAILABLE,
)
_KEPT = (Verdict.PASS, Verdict.KNOWN)


class Change(str, Enum):
    """What became of a claim on an engine."""

    NEW_FAILURE = "new failure"
    LOST = "lost"
    FIXED = "fixed"
    GAINED = "gained"
    WITHDRAWN = "withdrawn"
    CHANGED = "changed"

    @property
    def is_regression(self) -> bool:
        """Whether one of these makes the comparison fail."""
        return self in (Change.NEW_FAILURE, Change.LOST)


@dataclass(frozen=True)
class Row:
    """One claim on one engine whose verdict is another. `old` or `new` is None where that side has no result."""

    claim: str
    label: str
    change: Change
    old: Result | None
    new: Result | None


@dataclass(frozen=True)
class Gone:
    """An engine that NEW does not have: how many claims OLD saw it keep, and why NEW's runs say it was not there, if they do."""

    label: str
    kept: int
    reason: str


@dataclass(frozen=True)
class Comparison:
    """All that differs between OLD and NEW. `versions`: of what, OLD's and NEW's, each with commas where there are several."""

    rows: tuple[Row, ...]
    figures: tuple[Move, ...]
    claims_added: tuple[str, ...]
    claims_gone: tuple[str, ...]
    engines_added: tuple[tuple[str, int], ...]
    """Each with how many claims it keeps."""
    engines_gone: tuple[Gone, ...]
    versions: tuple[tuple[str, str, str], ...]
    cut_short: tuple[str, ...]
    """Files of NEW without a session line."""
    sizes: tuple[tuple[int, int], tuple[int, int]]
    """Runs and results, of OLD and of NEW."""

    @property
    def regressions(self) -> int:
        """How many things got worse."""
        crossed = sum(move.movement is Movement.CROSSED for move in self.figures)
        return sum(row.change.is_regression for row in self.rows) + sum(gone.kept > 0 for gone in self.engines_gone) + crossed

    def of(self, change: Change) -> list[Row]:
        """The rows of one kind of change."""
        return [row for row in self.rows if row.change is change]


def compare(old: Sequence[RecordedRun], new: Sequence[RecordedRun], made: Container[str] = ()) -> Comparison:
    """OLD and NEW, one run or several each; `made`: claims of today's suites. Raises UnreadableRun for a side without results."""
    before, after = _by_key("OLD", old), _by_key("NEW", new)
    labels_before, labels_after = _second(before), _second(after)
    claims_before, claims_after = _first(before), _first(after)
    cut_short = tuple(str(run.path) for run in new if not run.session)
    claims_gone = claims_before - claims_after
    excused = set() if cut_short else {claim for claim in claims_gone if claim not in made}
    rows = []
    for claim, label in sorted(before.keys() | after.keys()):
        if label not in labels_after or (claim in excused):
            continue
        here, there = _worst(before.get((claim, label), ())), _worst(after.get((claim, label), ()))
        change = change_of(here, there)
        if change is Change.NEW_FAILURE or (change is not None and label in labels_before):
            rows.append(Row(claim, label, change, here, there))
    return Comparison(
        rows=tuple(rows),
        figures=moves(before, after),
        claims_added=tuple(sorted(claims_after - claims_before)),
        claims_gone=tuple(sorted(claims_gone)),
        engines_added=tuple((label, _kept(label, after)) for label in sorted(labels_after - labels_before)),
        engines_gone=tuple(_gone(label, before, new) for label in sorted(labels_before - labels_after)),
        versions=_versions(before, after, old, new),
        cut_short=cut_short,
        sizes=((len(old), sum(map(len, before.values()))), (len(new), sum(map(len, after.values())))),
    )


def change_of(old: Result | None, new: Result | None) -> Change | None:
    """What the table above says of one claim on one engine; None where nothing changed."""
    if (old and old.verdict) is (new and new.verdict):
        return None
    change = None
    match _standing(old), _standing(new):
        case ("broken", _):
            change = Change.FIXED if new and new.verdict is Verdict.PASS else Change.CHANGED
        case (_, "broken"):
            change = Change.NEW_FAILURE
        case ("kept", "kept"):
            change = Change.FIXED if new and new.verdict is Verdict.PASS else Change.LOST
        case ("kept", _):
            change = Change.WITHDRAWN if new and is_declared(new) else Change.LOST
        case (_, "kept"):
            change = Change.GAINED
        case ("skipped", "skipped"):
            change = Change.CHANGED
    return change


def _standing(result: Result | None) -> str:
    """`broken`, `kept` (PASS or KNOWN), `skipped` or `absent`."""
    if result is None:
        return "absent"
    if result.verdict.fails_the_run:
        return "broken"
    return "kept" if result.verdict in _KEPT else "skipped"


def is_declared(result: Result) -> bool:
    """Whether the engine's declaration explains an UNSUPPORTED result: its reason begins with a capability of the kind."""
    named = result.reason.partition(": ")[0]
    return result.verdict is Verdict.UNSUPPORTED and named in {member.value for member in VOCABULARY.get(result.kind, ())}


def _by_key(side: str, runs: Sequence[RecordedRun]) -> dict[Key, list[Result]]:
    found: dict[Key, list[Result]] = defaultdict(list)
    for run in runs:
        for result in run.results:
            if not result.fault:
                found[result.claim, result.column].append(result)
    if not found:
        raise UnreadableRun(f"{side}: no result of an engine in {', '.join(str(run.path) for run in runs) or 'no file'}; give other files")
    return dict(found)


def _worst(results: Iterable[Result]) -> Result | None:
    return min(results, key=lambda result: _WORST.index(result.verdict), default=None)


def _first(keys: Iterable[Key]) -> set[str]:
    return {claim for claim, _ in keys}


def _second(keys: Iterable[Key]) -> set[str]:
    return {label for _, label in keys}


def _gone(label: str, before: Mapping[Key, Sequence[Result]], new: Sequence[RecordedRun]) -> Gone:
    told = [_mapping(run.session, "unavailable").get(label) for run in new]
    return Gone(label, _kept(label, before), next((str(why) for why in told if why), ""))


def _kept(label: str, results: Mapping[Key, Sequence[Result]]) -> int:
    worst = [_worst(own) for (_, engine), own in results.items() if engine == label]
    return sum(result is not None and result.verdict in _KEPT for result in worst)


def _versions(
    before: Mapping[Key, Sequence[Result]], after: Mapping[Key, Sequence[Result]], old: Sequence[RecordedRun], new: Sequence[RecordedRun]
) -> tuple[tuple[str, str, str], ...]:
    """Engines on both sides, then packages, cards and the commit, as the session lines have them."""
    here, there = _of_engines(before) | _of_sessions(old), _of_engines(after) | _of_sessions(new)
    both = [name for name in here if name in there and here[name] != there[name]]
    return tuple((name, ", ".join(sorted(here[name])), ", ".join(sorted(there[name]))) for name in both)


def _of_engines(results: Mapping[Key, Sequence[Result]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for own in results.values():
        for result in own:
            found[result.engine].add(result.version or "unknown")
    return {name: found[name] for name in sorted(found)}


def _of_sessions(runs: Sequence[RecordedRun]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for session in (run.session for run in runs if run.session):
        machine = _mapping(session, "machine")
        for package, version in _mapping(machine, "packages").items():
            found[f"package {package}"].add(str(version))
        found["processor"].add(str(machine.get("cpu", "unknown")))
        cards = machine.get("cards")
        names = [str(card.get("name")) for card in cards if isinstance(card, Mapping)] if isinstance(cards, list) else []
        found["cards"].add(" + ".join(names) or "none")
        found["seed"].add(str(session.get("seed", "unknown")))
        found["commit"].add(str(session.get("commit") or "unknown"))
    return found


def _mapping(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field that a forged or older record may hold as something else."""
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}
