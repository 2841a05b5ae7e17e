"""How schedules are drawn: which steps, how often each, and how many."""

from __future__ import annotations

from typing import Any

from harness.core.capabilities import Transfer
from harness.transfer.schedule import (
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
    Step,
    Stop,
)

SAME = ""
"""Stands for the request that the step before it names: most steps go on with one request."""

NOTHING = "nothing"
"""A step that is left out: what the others shrink to."""

Word = tuple[str, str, int]
"""A kind of step, the request (or SAME), and a number."""


def schedules(offered: frozenset[Transfer], *, requests: int, tokens: int, ticks: int, steps: int) -> Any:
    """A strategy: schedules over `requests` requests, payloads of 1 to `tokens` tokens, waits of 1 to `ticks` ticks.

    Each has `steps` words or half as many more, of one step or two, and shrinks to one step. What the engine does not offer is left out.
    """
    from hypothesis import strategies as st

    names = [chr(ord("a") + i) for i in range(requests)]
    # The simplest come first: there a failing schedule shrinks to.
    words = st.tuples(
        st.sampled_from(_verbs(offered)),
        st.sampled_from([SAME] * (2 * requests) + names),
        st.sampled_from([n for n in (1, tokens // 2, tokens) if n]),
    )
    # Lists without a least size are mostly short. These shrink to nothing by their words, and then count as one release.
    text = st.lists(words, min_size=steps, max_size=steps + steps // 2)
    return text.map(lambda drawn: _schedule(drawn, ticks, tokens))


def _verbs(offered: frozenset[Transfer]) -> list[str]:
    """Each as often as it is to be drawn. What belongs together is drawn together too, so that enough schedules get somewhere."""
    weights = {NOTHING: 1, "send": 4, "start": 4, "consume": 4, "receive": 2, "restart receiver": 3, "restart sender": 1}
    weights |= {"fail get": 1, "stop": 1, "hold": 2, "release": 1, "send + start": 6, "start + consume": 5, "send + receive": 3}
    if Transfer.ABORT in offered:
        weights |= {"abort": 4, "send + abort": 3, "start + abort": 3}
    if Transfer.LAB in offered:
        weights |= {"fail copy": 1, "advance": 1}
    return [verb for verb, weight in weights.items() for _ in range(weight)]


def _schedule(words: list[Word], ticks: int, tokens: int) -> Schedule:
    steps: list[Step] = []
    request = "a"
    for verb, named, number in words:
        if verb == NOTHING:
            continue
        request = named or request
        steps += [_step(one, request, number, max(1, ticks * number // tokens)) for one in verb.split(" + ")]
    return Schedule(tuple(steps) or (Release(),))


def _step(verb: str, request: str, tokens: int, ticks: int) -> Step:
    about_one: dict[str, Any] = {"start": Start, "consume": Consume, "receive": Receive, "abort": Abort}
    if verb in about_one:
        return about_one[verb](request)
    others: dict[str, Step] = {
        "send": Send(request, tokens),
        "restart receiver": Restart(Side.RECEIVER),
        "restart sender": Restart(Side.SENDER),
        "fail get": Fail(Failing.GET),
        "fail copy": Fail(Failing.COPY),
        "stop": Stop(),
        "hold": Hold(),
        "release": Release(),
        "advance": Advance(ticks),
    }
    return others[verb]
