"""What a comparison says, in the order in which a person wants to know it: once, for Markdown and for HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.report.diff import Change, Comparison, Row
from harness.report.diff_figures import Move, Movement
from harness.report.runs import Result


@dataclass(frozen=True)
class Section:
    """A table with a title; `note` says what is in it where that is not plain."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    replays: tuple[str, ...] = field(default=())
    """Commands that show each row again, or empty ones."""


def headline(found: Comparison) -> str:
    """`2 regressions`, `No regression`."""
    count = found.regressions
    return "No regression" if not count else f"{count} regression{'s' if count > 1 else ''}"


def summary(found: Comparison) -> str:
    """Every kind of change with its number, regressions first; those that did not happen are left out."""
    counts = [
        (len(found.of(Change.NEW_FAILURE)), "new failure", "new failures"),
        (len(found.of(Change.LOST)), "lost", "lost"),
        (sum(gone.kept > 0 for gone in found.engines_gone), "engine gone", "engines gone"),
        (_figures(found, Movement.CROSSED), "beyond a bound", "beyond a bound"),
        (len(found.of(Change.FIXED)), "fixed", "fixed"),
        (len(found.of(Change.GAINED)), "gained", "gained"),
        (len(found.of(Change.WITHDRAWN)), "withdrawn", "withdrawn"),
        (len(found.of(Change.CHANGED)), "other change", "other changes"),
        (_figures(found, Movement.MOVED), "beyond noise", "beyond noise"),
        (len(found.claims_added), "new claim", "new claims"),
        (len(found.claims_gone), "claim gone", "claims gone"),
        (len(found.engines_added), "new engine", "new engines"),
    ]
    return "; ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts if count) or "nothing changed"


def sides(found: Comparison) -> str:
    """How much was compared with how much."""
    (old_runs, old_results), (new_runs, new_results) = found.sizes
    return f"OLD: {old_results} results in {_runs(old_runs)}. NEW: {new_results} results in {_runs(new_runs)}."


def sections(found: Comparison) -> list[Section]:
    """The tables that have rows."""
    gone = tuple((each.label, str(each.kept), each.reason or "not among the engines of NEW") for each in found.engines_gone)
    everything = [
        _verdicts(found, Change.NEW_FAILURE, "New failures"),
        _verdicts(found, Change.LOST, "Lost: kept in OLD and not judged in NEW"),
        Section("Engines gone", ("engine", "claims kept in OLD", "why"), gone),
        _moves(found, Movement.CROSSED, "Figures beyond their bound"),
        _verdicts(found, Change.FIXED, "Fixed"),
        _verdicts(found, Change.GAINED, "Gained"),
        _verdicts(found, Change.WITHDRAWN, "Withdrawn: the engine declares that it does not offer it"),
        _verdicts(found, Change.CHANGED, "Other changes of verdict"),
        _moves(found, Movement.MOVED, "Figures beyond their noise", "chance: how often repeats alone would lie apart like this"),
        _moves(found, Movement.SHOWN, "Figures that differ, with one run on each side", "shown, not judged: one run has no noise"),
        Section("Claims added", ("claim",), tuple((claim,) for claim in found.claims_added)),
        Section("Claims gone", ("claim",), tuple((claim,) for claim in found.claims_gone), "no engine has them in NEW"),
        Section("Engines added", ("engine", "claims kept"), tuple((label, str(kept)) for label, kept in found.engines_added)),
        Section("Versions", ("what", "OLD", "NEW"), found.versions),
        Section(
            "Cut short", ("file",), tuple((name,) for name in found.cut_short), "these runs of NEW were ended before their session line"
        ),
    ]
    return [section for section in everything if section.rows]


def _verdicts(found: Comparison, change: Change, title: str) -> Section:
    rows = found.of(change)
    cells = tuple((row.claim, row.label, _verdict(row.old), _verdict(row.new), _why(row)) for row in rows)
    return Section(title, ("claim", "engine", "OLD", "NEW", "why"), cells, replays=tuple(row.new.replay if row.new else "" for row in rows))


def _verdict(result: Result | None) -> str:
    return result.verdict.value if result else "absent"


def _why(row: Row) -> str:
    if row.new is None:
        return "no result of it in NEW"
    return row.new.reason or (f"was: {row.old.reason}" if row.old and row.old.reason else "")


def _moves(found: Comparison, movement: Movement, title: str, note: str = "") -> Section:
    own = [move for move in found.figures if move.movement is movement]
    chances = movement is Movement.MOVED
    columns = ("claim", "engine", "figure", "OLD", "NEW", "unit", "bound", *(("chance",) if chances else ()))
    return Section(title, columns, tuple((*_cells(move), *((_chance(move),) if chances else ())) for move in own), note)


def _cells(move: Move) -> tuple[str, ...]:
    factor = "" if move.factor is None else f" (x{move.factor:.3g})"
    bound = "" if move.bound is None else f"{move.bound:g}"
    return move.claim, move.label, move.name, _range(move.old), f"{_range(move.new)}{factor}", move.unit, bound


def _chance(move: Move) -> str:
    return f"{100 * (move.chance or 0):.2g} %"


def _range(values: Sequence[float]) -> str:
    if min(values) == max(values):
        return f"{values[0]:.6g}"
    return f"{min(values):.6g} to {max(values):.6g} ({len(values)} runs)"


def _figures(found: Comparison, movement: Movement) -> int:
    return sum(move.movement is movement for move in found.figures)


def _runs(count: int) -> str:
    return f"{count} run" + ("s" if count != 1 else "")
