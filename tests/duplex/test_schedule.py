"""The text of a schedule of slots: what is written is read back, and what cannot be read says what could stand there."""

import pytest

from harness.core.capabilities import Duplex
from harness.core.drawing import explore
from harness.duplex.drawing import schedules
from harness.duplex.schedule import (
    STEPS,
    Admit,
    Cancel,
    Compact,
    Finish,
    Guest,
    Hear,
    Pause,
    Poison,
    Recycle,
    Release,
    Schedule,
    Sound,
    Tick,
)

EVERY = Schedule(
    1,
    (
        Tick(10),
        Recycle(0, Guest.VOICE),
        Admit(Guest.PERSONA),
        Release(3),
        Finish(1),
        Cancel(2),
        Pause(1, 3),
        Hear(0, Sound.NAN),
        Compact(),
        Poison(),
    ),
)
TEXT = "watch 1; tick 10; recycle 0 voice; admit persona; release 3; finish 1; cancel 2; pause 1 3; hear 0 nan; compact; poison"


def test_text():
    """Every kind of step is there, and has its words."""
    assert str(EVERY) == TEXT
    assert {type(step) for step in EVERY.steps} == set(STEPS.kinds)


def test_parsed_back():
    """The text says everything, however it is spaced."""
    assert Schedule.parse(TEXT) == EVERY
    assert Schedule.parse(f" {TEXT.replace('; ', ' ;  ')} ;") == EVERY
    assert Schedule.parse("watch 0; tick 1") != Schedule.parse("watch 1; tick 1")


@pytest.mark.parametrize(("text", "highest"), [(TEXT, 3), ("watch 2; tick 1", 2), ("watch 0; pause 1 9", 1)])
def test_highest_slot(text, highest):
    """Slots are told from other numbers."""
    assert Schedule.parse(text).highest_slot == highest


@pytest.mark.parametrize(
    ("place", "shorter"),
    [
        (0, ["watch 1; pause 1 2; tick 1", "watch 1; tick 1; pause 1 2; tick 1"]),
        (1, ["watch 1; tick 5; tick 1"]),
        (2, ["watch 1; tick 5; pause 1 2"]),
        (3, []),
    ],
)
def test_shorter(place, shorter):
    """A step is left out, or fewer ticks pass."""
    assert list(map(str, Schedule.parse("watch 1; tick 5; pause 1 2; tick 1").without(place))) == shorter


def test_never_empty():
    """The last step stays."""
    assert list(Schedule.parse("watch 1; compact").without(0)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with the slot to watch"),
        ("tick 3", "begins with the slot to watch"),
        ("watch 1", "begins with the slot to watch"),
        ("watch 1; tikc 3", "tick"),
        ("watch 1; tick", "write tick TICKS"),
        ("watch 1; tick 0", "a number above 0"),
        ("watch 1; compact 2", "write compact"),
        ("watch 1; release -1", "a slot's number"),
        ("watch 1; recycle 0 bob", "default or persona or voice or sampled"),
        ("watch 1; watch 2", "unknown step"),
    ],
)
def test_unreadable(text, said):
    """An error names the step and what could stand there."""
    with pytest.raises(ValueError, match=said):
        Schedule.parse(text)


def drawn(offered, count=25, slots=4, ticks=40):
    """Schedules as a run draws them."""
    seen = []
    explore(schedules(frozenset(offered), slots=slots, ticks=ticks, prefill=16), seen.append, seed=7, examples=count)
    return seen


def test_drawn_whole():
    """What is drawn has as many ticks as asked for, names slots that there are, and can be read back."""
    seen = drawn(Duplex)
    ticks = [sum(step.ticks for step in schedule.steps if isinstance(step, Tick)) for schedule in seen]

    assert set(ticks) == {40}
    assert {schedule.highest_slot for schedule in seen} <= {0, 1, 2, 3}
    assert [Schedule.parse(str(schedule)) for schedule in seen] == seen
    assert {type(step) for schedule in seen for step in schedule.steps} == set(STEPS.kinds)


@pytest.mark.parametrize(
    ("lacking", "steps", "words"),
    [
        (Duplex.PAUSE, {Pause}, ()),
        (Duplex.ADMISSION, {Admit, Release}, ()),
        (Duplex.FINISH, {Finish}, ()),
        (Duplex.CANCEL, {Cancel}, ()),
        (Duplex.LAB, {Compact, Poison}, ()),
        (Duplex.SLOT_ERRORS, set(), ("nan",)),
        (Duplex.VOICE, set(), ("voice",)),
        (Duplex.PERSONA, set(), ("persona",)),
        (Duplex.SEED, set(), ("sampled",)),
    ],
)
def test_drawn_for_the_engine(lacking, steps, words):
    """What the engine does not offer is not drawn, and all else is."""
    seen = drawn(set(Duplex) - {lacking})

    assert {type(step) for schedule in seen for step in schedule.steps} == set(STEPS.kinds) - steps
    assert not any(f" {word}" in str(schedule) for schedule in seen for word in words)
