"""Drawn cases: the same for the same seed, shrunk where one fails, and ended by a verdict of ours."""

import pytest
from hypothesis import strategies as st

from harness.core.drawing import explore
from harness.core.verdict import ClaimBroken, DeadlineMissed, Inconclusive, Vacuous

NUMBERS = st.lists(st.integers(0, 1000), max_size=20)


def drawn(seed, examples=30):
    seen = []
    explore(NUMBERS, seen.append, seed=seed, examples=examples)
    return seen


def test_seed():
    """The seed says what is drawn, and how many cases are is said too."""
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert len(drawn(1, examples=10)) == 10


@pytest.mark.parametrize("kind", [ClaimBroken, Inconclusive, Vacuous])
def test_shortest(kind):
    """A finding comes out as itself, for the shortest case, which is the one that was tried last."""
    seen = []

    def check(numbers):
        seen.append(numbers)
        if any(n > 100 for n in numbers):
            raise kind("WRONG", got=f"{numbers}")

    with pytest.raises(kind) as found:
        explore(NUMBERS, check, seed=1, examples=100)
    assert found.value.got == "[101]"
    assert seen[-1] == [101]


def test_does_not_repeat():
    """A case that fails once and then passes is INCONCLUSIVE, and what it failed as is told."""
    failures = iter([True])

    def check(numbers):
        if len(numbers) > 3 and next(failures, False):
            raise ClaimBroken("WRONG", got="a miss")

    with pytest.raises(Inconclusive, match="once a miss; not again"):
        explore(NUMBERS, check, seed=1, examples=100)


def test_missed_deadline():
    """A case that hangs is not made shorter: each try would cost a deadline."""
    hung = []

    def check(numbers):
        if sum(numbers) > 100:
            hung.append(numbers)
            raise DeadlineMissed("DEADLINE MISSED", got="consume()")

    with pytest.raises(DeadlineMissed):
        explore(NUMBERS, check, seed=1, examples=100)
    assert len({str(numbers) for numbers in hung}) == 1


def test_bounded():
    """Only so many cases are tried to shorten one."""
    tried = []

    def check(numbers):
        if tried or sum(numbers) > 1000:
            tried.append(str(numbers))
        if sum(numbers) > 1000:
            raise ClaimBroken("WRONG", got=f"{numbers}")

    with pytest.raises(ClaimBroken):
        explore(NUMBERS, check, seed=1, examples=100, shrinks=5)
    assert len(set(tried)) <= 1 + 5


def test_our_mistake():
    """An exception that is no finding is not turned into one."""
    with pytest.raises(ZeroDivisionError):
        explore(NUMBERS, lambda numbers: 1 // (len(numbers) - len(numbers)), seed=1, examples=10)
