"""Figures of two sides: which crossed the bound that they are held to, and which moved beyond their noise.

Noise is what repeats show: the range of a figure over the runs of OLD, and over those of NEW. A figure moved beyond it if the two ranges
have no value in common and one of the sides has at least two runs. Were nothing changed, every order of the n + m values would be as
likely as any other, so that happens by chance in 2 n! m! / (n + m)! of such comparisons (n = 1 and m = 2: two in three; 5 and 5: 1 in 126);
the chance is told beside the figure instead of a threshold. A record does not say whether more is better, so a move is no regression.

A bound is judged with a single run as well. The right side of it is the one on which all of OLD's values lie while OLD passed; one value
of NEW strictly beyond it has crossed, and that is a regression. Nothing else is judged where each side has one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import comb, isfinite

from harness.core.verdict import Verdict
from harness.report.runs import Result


class Movement(str, Enum):
    """What can be said of a figure that is not the same on both sides."""

    CROSSED = "beyond its bound"
    MOVED = "beyond its noise"
    SHOWN = "not judged"


@dataclass(frozen=True)
class Move:
    """A figure of one claim on one engine: its values over the runs of OLD and of NEW. `chance`: of a move without a cause, for MOVED."""

    claim: str
    label: str
    name: str
    unit: str
    bound: float | None
    old: tuple[float, ...]
    new: tuple[float, ...]
    movement: Movement
    chance: float | None = None

    @property
    def factor(self) -> float | None:
        """NEW's middle over OLD's; None where OLD's is 0."""
        middle = _middle(self.old)
        return _middle(self.new) / middle if middle else None


def moves(before: Mapping[tuple[str, str], Sequence[Result]], after: Mapping[tuple[str, str], Sequence[Result]]) -> tuple[Move, ...]:
    """The figures that both sides have and that differ: the gravest first."""
    found = []
    for claim, label in sorted(before.keys() & after.keys()):
        results = before[claim, label]
        old, new = _figures(results), _figures(after[claim, label])
        passed = all(result.verdict is Verdict.PASS for result in results)
        for name, unit in sorted(old.keys() & new.keys()):
            (bounds, here), (_, there) = old[name, unit], new[name, unit]
            # A workload may ask for another bound from run to run; then there is none to speak of.
            bound = bounds.pop() if len(bounds) == 1 else None
            movement, chance = _judge(here, there, bound if passed else None)
            if movement is not None:
                found.append(Move(claim, label, name, unit, bound, tuple(here), tuple(there), movement, chance))
    order = list(Movement)
    return tuple(sorted(found, key=lambda move: (order.index(move.movement), move.chance or 0.0, -_size(move))))


def _figures(results: Iterable[Result]) -> dict[tuple[str, str], tuple[set[float | None], list[float]]]:
    found: dict[tuple[str, str], tuple[set[float | None], list[float]]] = {}
    for result in results:
        for figure in result.figures:
            if isinstance(figure.value, (int, float)) and isfinite(figure.value):
                bounds, values = found.setdefault((figure.name, figure.unit), (set(), []))
                bounds.add(figure.bound)
                values.append(float(figure.value))
    return found


def _judge(old: Sequence[float], new: Sequence[float], bound: float | None) -> tuple[Movement | None, float | None]:
    if bound is not None and crosses(old, new, bound):
        return Movement.CROSSED, None
    apart = max(old) < min(new) or max(new) < min(old)
    if apart and max(len(old), len(new)) > 1:
        return Movement.MOVED, 2 / comb(len(old) + len(new), len(old))
    return (Movement.SHOWN if apart else None), None


def crosses(old: Sequence[float], new: Sequence[float], bound: float) -> bool:
    """Whether a value of `new` lies strictly beyond the bound, seen from the one side on which all of `old` lie."""
    below, above = max(old) <= bound, min(old) >= bound
    # All of them on the bound: either side may be the right one.
    return below != above and (max(new) > bound if below else min(new) < bound)


def _middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _size(move: Move) -> float:
    """How far it moved, as a share of the larger of the two: 0 to 1, or more where the sign is another."""
    here, there = _middle(move.old), _middle(move.new)
    return abs(there - here) / max(abs(here), abs(there))
