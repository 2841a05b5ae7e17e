"""The text of a schedule: what is written is read back, and what cannot be read says what could stand there."""

import pytest

from harness.transfer.schedule import (
    STEPS,
    Abort,
    Advance,
    Consume,
    Fail,
    Failing,
    Hold,
    Receive,
    Release,
    Restart,
    Schedule,
    Send,
    Side,
    Start,
    Stop,
)

EVERY = (
    Send("a", 10),
    Start("a"),
    Consume("a"),
    Receive("b"),
    Abort("b2"),
    Fail(Failing.COPY),
    Fail(Failing.GET),
    Hold(),
    Release(),
    Advance(5),
    Stop(),
    Restart(Side.SENDER),
    Restart(Side.RECEIVER),
)
TEXT = "; ".join(
    [
        "send a 10; start a; consume a; receive b; abort b2; fail copy; fail get; hold; release; advance 5; stop",
        "restart sender; restart receiver",
    ]
)


def test_text():
    """Every kind of step is there, and has its words."""
    assert str(Schedule(EVERY)) == TEXT
    assert {type(step) for step in EVERY} == set(STEPS.kinds)


def test_parsed_back():
    """The text says everything, however it is spaced."""
    assert Schedule.parse(TEXT) == Schedule(EVERY)
    assert Schedule.parse(f" {TEXT.replace('; ', ' ;')} ;") == Schedule(EVERY)
    assert Schedule.parse("send a 10") != Schedule.parse("send a 1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one step"),
        (" ; ", "at least one step"),
        ("sned a 10", "send"),
        ("send a", "write send REQUEST TOKENS"),
        ("start", "write start REQUEST"),
        ("hold a", "write hold"),
        ("send a ten", "a number above 0"),
        ("send a 0", "a number above 0"),
        ("start A", "a request's name"),
        ("restart both", "sender or receiver"),
        ("fail put", "copy or get"),
    ],
)
def test_unreadable(text, said):
    """An error names the step and what could stand there."""
    with pytest.raises(ValueError, match=said):
        Schedule.parse(text)
