"""Drawn schedules: every step that the engine offers, none that it does not, and all of them readable."""

from itertools import chain

from harness.core.capabilities import Transfer
from harness.core.drawing import explore
from harness.core.steps import step_text
from harness.transfer.drawing import schedules
from harness.transfer.schedule import STEPS, Schedule, Send

EVERYTHING = frozenset(Transfer)


def drawn(offered=EVERYTHING):
    seen = []
    explore(schedules(offered, requests=4, tokens=10, ticks=200, steps=16), seen.append, seed=1, examples=200)
    return seen


def kinds(seen):
    steps = chain.from_iterable(schedule.steps for schedule in seen)
    return {step_text(step) if step.verb in ("fail", "restart") else step.verb for step in steps}


def test_every_step():
    """Each kind comes up, over all the requests, with payloads of several sizes."""
    seen = drawn()
    sends = [step for schedule in seen for step in schedule.steps if isinstance(step, Send)]

    assert kinds(seen) == {kind.verb for kind in STEPS.kinds} - {"fail", "restart"} | {
        "fail copy",
        "fail get",
        "restart sender",
        "restart receiver",
    }
    assert {step.request for step in sends} == set("abcd")
    assert {step.tokens for step in sends} == {1, 5, 10}


def test_not_offered():
    """An engine is not asked for what it lacks."""
    assert not kinds(drawn(EVERYTHING - {Transfer.ABORT, Transfer.LAB})) & {"abort", "fail copy", "advance"}


def test_readable():
    """Each can be replayed from its text."""
    seen = drawn()

    assert [Schedule.parse(str(schedule)) for schedule in seen] == seen
