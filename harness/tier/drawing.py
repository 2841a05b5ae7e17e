"""How schedules are drawn: which steps, how often each, over which lengths, and how many."""

from __future__ import annotations

from typing import Any

from harness.core.capabilities import TierCap
from harness.tier.protocol import Policy
from harness.tier.schedule import (
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
    Step,
    Submit,
    Text,
)

SAME = "same"
"""Stands for the text that the step before it names: most steps go on with one text."""

NEW = (1, 2, 3, 5)
"""How many new tokens a prompt is asked for, and other small numbers."""

FAILURES = [f"fail {what.value}" for what in Copying]

NOTHING = "nothing"
"""A step that is left out: what the others shrink to."""

Word = tuple[str, str, int, int]
"""A kind of step, the text (or SAME), the tokens of a prompt, and a small number."""


def schedules(offered: frozenset[TierCap], policy: Policy, *, steps: int) -> Any:
    """A strategy: schedules of at most `steps` words, of one step or two each. What the engine does not offer is left out.

    Prompts end just before, at and behind the pages and chunks of the policy, and the longest fits its pool.
    """
    from hypothesis import strategies as st

    texts = [Text.A, Text.B, Text.C, *([Text.SALTED] if TierCap.SALT in offered else [])]

    def text(verbs: list[str]) -> Any:
        words = st.tuples(
            st.sampled_from(verbs),
            st.sampled_from([SAME] * len(texts) + [text.value for text in texts]),
            st.sampled_from(lengths(policy)),
            st.sampled_from(NEW),
        )
        # Lists without a least size are mostly short. These shrink to nothing by their words, and then count as one step.
        return st.lists(words, min_size=steps // 2, max_size=steps).map(_schedule)

    whole = _verbs(offered)
    if TierCap.LAB not in offered:
        return text(whole)
    # Counts are predicted only until a copy fails, so in two thirds of all schedules none does.
    return st.one_of(text(whole), text(whole), text(whole + FAILURES * 2))


def lengths(policy: Policy) -> list[int]:
    """Tokens of prompts: those around the first three chunks, one page, and one token, as far as the device pool holds them."""
    ends = [policy.page, *(policy.chunk * number for number in (1, 2, 3))]
    most = policy.device_pages // len(policy.groups) * policy.page - max(NEW)
    return [n for n in dict.fromkeys([1, *(end + beside for end in ends for beside in (1, 0, -1))]) if 0 < n <= most]


def _verbs(offered: frozenset[TierCap]) -> list[str]:
    """Each as often as it is to be drawn. What belongs together is drawn together too, so that enough schedules get somewhere."""
    weights = {NOTHING: 1, "submit": 5, "generate": 5, "pump": 6, "settle": 1}
    by_capability: dict[TierCap, dict[str, int]] = {
        TierCap.ABORT: {"abort": 2, "submit + pump + abort": 2},
        TierCap.RETRACT: {"retract": 2, "submit + pump + retract": 2},
        TierCap.DROP_DEVICE: {"evict": 2, "settle + evict": 2},
        TierCap.FLUSH: {"flush": 1},
        TierCap.LAB: {"lag store": 1, "lag load": 2, "poison": 2},
    }
    for capability, more in by_capability.items():
        if capability in offered:
            weights |= more
    return [verb for verb, weight in weights.items() for _ in range(weight)]


def _schedule(words: list[Word]) -> Schedule:
    steps: list[Step] = []
    text = Text.A
    for verb, named, tokens, number in words:
        if verb == NOTHING:
            continue
        text = text if named == SAME else Text(named)
        steps += [_step(one, text, tokens, number) for one in verb.split(" + ")]
    return Schedule(tuple(steps) or (Settle(),))


def _step(verb: str, text: Text, tokens: int, number: int) -> Step:
    copied: dict[str, Step] = {f"fail {what.value}": Fail(what) for what in Copying}
    copied |= {f"lag {what.value}": Lag(what, number - 1) for what in Copying}
    others: dict[str, Step] = {
        "submit": Submit(text, tokens, number),
        "generate": Generate(text, tokens, number),
        "pump": Pump(number),
        "abort": Abort(text),
        "retract": Retract(text),
        "evict": Evict(),
        "flush": Flush(),
        "settle": Settle(),
        "poison": Poison(),
    }
    return (copied | others)[verb]
