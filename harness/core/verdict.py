"""Verdicts, and the exceptions that carry one from a check to the run."""

from __future__ import annotations

from enum import Enum


class Verdict(str, Enum):
    """What a run says of one claim on one engine."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    VACUOUS = "VACUOUS"
    UNSUPPORTED = "UNSUPPORTED"
    UNAVAILABLE = "UNAVAILABLE"
    KNOWN = "KNOWN"
    ERROR = "ERROR"

    def __str__(self) -> str:
        return self.value

    @property
    def fails_the_run(self) -> bool:
        """Whether one such verdict makes the whole run fail."""
        return self in _FAILING

    @property
    def judged(self) -> bool:
        """Whether the engine was held to the claim at all (a skip judges nothing)."""
        return self not in (Verdict.UNSUPPORTED, Verdict.UNAVAILABLE)


_FAILING = frozenset({Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.VACUOUS, Verdict.ERROR})


class Finding(AssertionError):
    """A check found something: the base of what ends a test with a verdict of its own.

    `headline` is two or three words in capitals (`PAYLOAD BROKEN`). `got` and `expected` are one line each, with where the
    expected value comes from; `extent` says how much differs.
    """

    verdict = Verdict.FAIL

    def __init__(self, headline: str, *, got: str, expected: str = "", extent: str = "") -> None:
        super().__init__(f"{headline}: got {got}" + (f", expected {expected}" if expected else ""))
        self.headline, self.got, self.expected, self.extent = headline, got, expected, extent


class ClaimBroken(Finding):
    """The engine broke the claim under test."""


class Inconclusive(Finding):
    """The control differs from itself, so a difference says nothing about the claim."""

    verdict = Verdict.INCONCLUSIVE


class Vacuous(Finding):
    """Nothing was compared, or the path under test was never taken."""

    verdict = Verdict.VACUOUS


class Leak(ClaimBroken):
    """The engine holds more, or less, after a test than before it."""


class EngineRaised(ClaimBroken):
    """A call of the engine raised; the engine's exception is the `__cause__`."""


class DeadlineMissed(ClaimBroken):
    """A call of the engine did not return in time; `stacks` holds where every thread stood."""

    def __init__(self, headline: str, *, got: str, expected: str = "", stacks: str = "") -> None:
        super().__init__(headline, got=got, expected=expected)
        self.stacks = stacks


class Unavailable(Exception):
    """Raised by an adapter's `build` for what only a build can know (gated weights, capacity). The reason is its text."""
