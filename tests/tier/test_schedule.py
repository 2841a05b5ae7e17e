"""The text of a schedule of requests: what is written is read back, what is drawn is readable, and what is not says what could stand."""

import pytest

from harness.core.capabilities import TierCap
from harness.core.drawing import explore
from harness.tier.drawing import lengths, schedules
from harness.tier.protocol import Group, Policy
from harness.tier.schedule import (
    STEPS,
    Abort,
    Copying,
    Evict,
    Fail,
    Flush,
    Generate,
    Lag,
    Poison,
    Pump,
    Retract,
    Schedule,
    Settle,
    Submit,
    Text,
)

EVERY = Schedule(
    (
        Submit(Text.A, 100, 4),
        Pump(2),
        Abort(Text.A),
        Fail(Copying.STORE),
        Lag(Copying.LOAD, 0),
        Retract(Text.B),
        Evict(),
        Settle(),
        Poison(),
        Flush(),
        Generate(Text.SALTED, 33, 1),
    )
)
TEXT = "submit a 100 4; pump 2; abort a; fail store; lag load 0; retract b; evict; settle; poison; flush; generate salted 33 1"
POLICY = Policy(16, 32, 22, 12, (Group("sliding", 32), Group("full", None)), 3)


def test_text():
    """Every kind of step is there, and has its words."""
    assert str(EVERY) == TEXT
    assert {type(step) for step in EVERY.steps} == set(STEPS.kinds)


def test_parsed_back():
    """The text says everything, however it is spaced."""
    assert Schedule.parse(TEXT) == EVERY
    assert Schedule.parse(f" {TEXT.replace('; ', ' ;  ')} ;") == EVERY
    assert Schedule.parse("lag load 0") != Schedule.parse("lag load 1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one step, as in: generate a 100 4"),
        ("sbumit a 1 1", "submit"),
        ("submit a 1", "write submit TEXT TOKENS NEW"),
        ("submit d 1 1", "a or b or c or salted"),
        ("submit a 0 1", "a number above 0"),
        ("submit a 1 0", "a number above 0"),
        ("pump 0", "a number above 0"),
        ("lag load -1", "a number from 0 on"),
        ("fail evict", "store or load"),
        ("flush all", "write flush"),
    ],
)
def test_unreadable(text, said):
    """An error names the step and what could stand there."""
    with pytest.raises(ValueError, match=said):
        Schedule.parse(text)


def test_lengths():
    """Prompts end beside and on the ends of a page and of chunks, and fit the pool with the most new tokens."""
    assert lengths(POLICY) == [1, 17, 16, 15, 33, 32, 31, 65, 64, 63, 97, 96, 95]
    assert max(lengths(Policy(16, 32, 10, 0, POLICY.groups, 1))) == 65
    assert min(lengths(Policy(1, 1, 12, 0, POLICY.groups, 1))) == 1


def drawn(offered, count=60):
    """Schedules as a run draws them."""
    seen = []
    explore(schedules(frozenset(offered), POLICY, steps=30), seen.append, seed=7, examples=count)
    return seen


def test_drawn_whole():
    """What is drawn is of every kind, and can be read back; copies fail in some schedules, and in most none does."""
    seen = drawn(TierCap)
    failing = [schedule for schedule in seen if any(isinstance(step, Fail) for step in schedule.steps)]

    assert [Schedule.parse(str(schedule)) for schedule in seen] == seen
    assert {type(step) for schedule in seen for step in schedule.steps} == set(STEPS.kinds)
    assert 0 < len(failing) < len(seen) / 2


@pytest.mark.parametrize(
    ("lacking", "steps", "words"),
    [
        (TierCap.ABORT, {Abort}, ()),
        (TierCap.RETRACT, {Retract}, ()),
        (TierCap.DROP_DEVICE, {Evict}, ()),
        (TierCap.FLUSH, {Flush}, ()),
        (TierCap.LAB, {Fail, Lag, Poison}, ()),
        (TierCap.SALT, set(), ("salted",)),
    ],
)
def test_drawn_for_the_engine(lacking, steps, words):
    """What the engine does not offer is not drawn, and all else is."""
    seen = drawn(set(TierCap) - {lacking})

    assert {type(step) for schedule in seen for step in schedule.steps} == set(STEPS.kinds) - steps
    assert not any(word in str(schedule) for schedule in seen for word in words)
