"""The one object through which a check compares: it counts what was compared, and turns a difference into a finding.

A test that ends without a comparison is VACUOUS, and so is one whose path under test was never taken (`taken`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from harness.core.bits import first_divergence
from harness.core.verdict import ClaimBroken, EngineRaised, Inconclusive, Vacuous

Trace = Mapping[str, Any]
"""What one run left behind: labels to tensors, or to values with `==`, in the order they came."""


@dataclass(frozen=True)
class Series:
    """Values against something, such as a difference by tick: what x and y are, with units, and the pairs. y None: it is no number."""

    x: str
    y: str
    points: tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class Figure:
    """A number that a check measured or counted; `series` is what it sums up, where that is kept."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    series: Series | None = None

    def record(self) -> dict[str, Any]:
        """As JSON; a series that there is none of is left out."""
        return {name: value for name, value in asdict(self).items() if name != "series" or value is not None}


@dataclass
class Judge:
    """The record of one test. `stimulus` and `control` are lines of the failure text."""

    seed: int = 0
    stimulus: str = ""
    control: str = ""
    comparisons: int = 0
    figures: list[Figure] = field(default_factory=list)
    traces: dict[Any, Trace] = field(default_factory=dict)

    def same_bits(
        self, got: torch.Tensor | None, expected: torch.Tensor, what: str, *, source: str, axes: Sequence[str] = (), finite: bool = True
    ) -> None:
        """`got` holds the expected bits, shape and dtype, all finite. `source` says where the expected bits come from.

        `finite=False` is for payloads that stand for any bits.
        """
        __tracebackhide__ = True
        if not isinstance(got, torch.Tensor):
            held = "nothing" if got is None else f"a {type(got).__name__}"
            raise ClaimBroken("PAYLOAD BROKEN", got=f"{what}: {held}", expected=f"a tensor, from {source}")
        self.comparisons += expected.numel()
        found = first_divergence(got, expected, finite=finite)
        if found is None:
            return
        place = f"{what}[{found.at(axes)}] = " if found.index else f"{what} of "
        raise ClaimBroken("BITS DIFFER", got=f"{place}{found.got}", expected=f"{found.expected}, from {source}", extent=found.extent())

    def equal(self, got: Any, expected: Any, what: str, *, source: str = "") -> None:
        """Integers, tokens, enums, booleans and containers of them are equal, and of one type at every depth."""
        __tracebackhide__ = True
        self.comparisons += 1
        if not _alike(got, expected):
            origin = f", from {source}" if source else ""
            raise ClaimBroken("WRONG ANSWER", got=f"{what} = {_short(got)}", expected=f"{_short(expected)}{origin}")

    def demand(self, holds: bool, *, got: str, expected: str) -> None:
        """A condition that is no equality. `got` and `expected` say what was seen and what the claim asks for."""
        __tracebackhide__ = True
        self.comparisons += 1
        if not holds:
            raise ClaimBroken("WRONG ANSWER", got=got, expected=expected)

    def refused(self, call: Callable[[], Any], what: str, kinds: tuple[type[Exception], ...] = (Exception,)) -> str:
        """The engine refuses `call`: it raises one of `kinds`, with a text that says why. Returns that text.

        Only what an engine raised counts, as the guard tells it: a missed deadline passes through, and so does a mistake of the test.
        """
        __tracebackhide__ = True
        self.comparisons += 1
        expected = f"{' or '.join(kind.__name__ for kind in kinds)} that says why" if kinds != (Exception,) else "an error that says why"
        try:
            answer = call()
        except EngineRaised as raised:
            error = raised.__cause__
            text = str(error).strip()
            if isinstance(error, kinds) and text:
                return text
            # An interpreter that is told to leave (SystemExit) is no refusal either.
            raise ClaimBroken("NOT REFUSED", got=f"{what}: {raised.got}", expected=expected) from raised
        raise ClaimBroken("NOT REFUSED", got=f"{what}: {_short(answer)}", expected=expected)

    def attempt(self, call: Callable[[], Any]) -> Any:
        """What `call` returns; None where the engine refuses it by raising an ordinary exception. For what may be told in either way."""
        __tracebackhide__ = True
        try:
            return call()
        except EngineRaised as raised:
            if isinstance(raised.__cause__, Exception):
                return None
            raise

    def differ(self, got: torch.Tensor, other: torch.Tensor, what: str) -> None:
        """The positive twin: the stimulus must show here. If it does not, a check of "unaffected" would see nothing: VACUOUS."""
        __tracebackhide__ = True
        self.comparisons += other.numel()
        if first_divergence(got, other, finite=False) is None:
            raise Vacuous("STIMULUS INVISIBLE", got=f"{what} are the same bits", expected="a difference, or the check sees nothing")

    def taken(self, times: int, what: str) -> None:
        """The path under test was taken at least once, else VACUOUS."""
        __tracebackhide__ = True
        if times < 1:
            raise Vacuous("PATH NOT TAKEN", got=f"{what}: {times} times", expected="at least once")

    def figure(self, name: str, value: float, unit: str, bound: float | None = None, series: Series | None = None) -> None:
        """Record a number with its unit and, where there is one, the bound that it is held to. The last one of a name stands."""
        self.figures[:] = [figure for figure in self.figures if figure.name != name]
        self.figures.append(Figure(name, value, unit, bound, series))

    def controlled(self, key: Any, untouched: Callable[[], Trace], touched: Callable[[], Trace]) -> tuple[Trace, Trace]:
        """A, B, A: run `untouched`, `touched`, `untouched`; INCONCLUSIVE if both A runs differ anywhere. Returns (A, B).

        The first A is kept per stimulus `key` for later checks on the same engine; the second is always run.
        """
        __tracebackhide__ = True
        first = self.traces.get(key)
        if first is None:
            first = self.traces[key] = untouched()
        result = touched()
        again = untouched()
        place = first_difference(again, first)
        if place is not None:
            self.traces.pop(key, None)
            self.control = "A, B, A: the two A runs differ"
            raise Inconclusive("CONTROL DIFFERS", got=f"the second A run at {place}", expected="the first A run, bit for bit")
        self.control = f"A, B, A: both A runs identical over {len(first)} records"
        return first, result

    def close(self) -> None:
        """End of the test: VACUOUS if nothing was compared."""
        __tracebackhide__ = True
        if self.comparisons == 0:
            raise Vacuous("NOTHING COMPARED", got="0 values compared", expected="at least one")


def first_difference(got: Trace, expected: Trace) -> str | None:
    """Where two traces first differ, or None; a record that one of them lacks is a difference."""
    for label in [*expected, *(k for k in got if k not in expected)]:
        if label not in got or label not in expected:
            return f"{label} (only in one of them)"
        here, there = got[label], expected[label]
        if isinstance(here, torch.Tensor) and isinstance(there, torch.Tensor):
            found = first_divergence(here, there, finite=False)
            if found is not None:
                place = f"{label}[{found.at()}]" if found.index else label
                return f"{place}: {found.got}, not {found.expected}"
        elif not _alike(here, there):
            return f"{label}: {_short(here)}, not {_short(there)}"
    return None


def _alike(here: Any, there: Any) -> bool:
    """Equal, and of one type, as deep as lists, tuples and mappings go: neither 1 is True nor a string its enum."""
    if type(here) is not type(there):
        return False
    if isinstance(here, (list, tuple)):
        return len(here) == len(there) and all(map(_alike, here, there))
    if isinstance(here, Mapping):
        return here.keys() == there.keys() and all(_alike(here[k], there[k]) for k in here)
    return bool(here == there)


def _short(value: Any, limit: int = 160) -> str:
    text = str(value) if isinstance(value, str) and hasattr(value, "name") else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
