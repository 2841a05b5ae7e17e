"""Cases drawn by Hypothesis with the run's one seed: the same seed draws the same cases on every run and on every worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from harness.core.verdict import DeadlineMissed, Finding, Inconclusive

Case = TypeVar("Case")

SHRINKS = 300
"""Cases that are tried after the first failure, to find the shortest one that fails, unless a caller says otherwise."""


class _Budget:
    """Ends the search for shorter failures: once it is used up, what is not known to fail counts as passing."""

    def __init__(self, check: Callable[[Any], None], shrinks: int) -> None:
        self._check = check
        self.failing: dict[str, str] = {}
        """What is known to fail, and as what."""
        self._left = shrinks

    def __call__(self, case: Any) -> None:
        if self.failing:
            if self._left <= 0 and str(case) not in self.failing:
                return
            self._left -= 1
        try:
            self._check(case)
        except Finding as found:
            self.failing[str(case)] = found.got
            if isinstance(found, DeadlineMissed):
                # Each case that hangs again would cost a whole deadline.
                self._left = 0
            raise


def explore(cases: Any, check: Callable[[Case], None], *, seed: int, examples: int, shrinks: int = SHRINKS) -> None:
    """Call `check` with `examples` cases of the strategy, and after a failure with `shrinks` more; `str` tells a case from every other.

    A failure is raised for the shortest case that was found to fail, which is also the last that `check` is called with. Inconclusive if
    that case fails at one time and passes at another.
    """
    import hypothesis
    from hypothesis.errors import Flaky

    budget = _Budget(check, shrinks)

    # Nothing is kept between runs, and the settings of a user's own profile (CI brings one) do not change what is drawn.
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        derandomize=False,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @hypothesis.given(cases)
    def drawn(case: Case) -> None:
        __tracebackhide__ = True
        budget(case)

    try:
        drawn()
    except Flaky as flaky:
        raise Inconclusive(
            "DOES NOT REPEAT", got=f"once {list(budget.failing.values())[-1]}; not again", expected="one answer to one schedule"
        ) from flaky
