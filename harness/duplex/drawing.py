"""How schedules are drawn: which steps, how often each, and for how many ticks."""

from __future__ import annotations

from typing import Any

from harness.core.capabilities import Duplex
from harness.duplex.schedule import (
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
    Step,
    Tick,
)

NOTHING = "nothing"
"""A step that is left out: what the others shrink to."""

PAUSES = (1, 2, 4)
"""How many ticks a slot is left out."""

Word = tuple[str, int, int, str]
"""A kind of step, the slot, the ticks that pass after it, and a guest."""

_GUESTS = {Duplex.PERSONA: Guest.PERSONA, Duplex.VOICE: Guest.VOICE, Duplex.SEED: Guest.SAMPLED}
_ABOUT_A_SLOT: dict[str, Any] = {"release": Release, "finish": Finish, "cancel": Cancel}


def schedules(offered: frozenset[Duplex], *, slots: int, ticks: int, prefill: int) -> Any:
    """A strategy: schedules of at most `ticks` ticks over `slots` slots, watching one of them. What the engine does not offer is left out.

    `prefill` is how long a default session's takes, so that some steps come just when one has ended. A schedule shrinks to one tick.
    """
    from hypothesis import strategies as st

    guests = [Guest.DEFAULT.value, *(guest.value for capability, guest in _GUESTS.items() if capability in offered)]
    # The simplest come first: there a failing schedule shrinks to.
    gaps = [0, 1, 1, 1, 2, 2, 3, 5, 8, *([prefill, prefill + 2] if prefill else [])]
    word = st.tuples(st.sampled_from(_verbs(offered)), st.integers(0, slots - 1), st.sampled_from(gaps), st.sampled_from(guests))
    # Lists without a least size are mostly short. These shrink to nothing by their words.
    words = st.lists(word, min_size=ticks // 5, max_size=ticks // 2)
    return st.tuples(st.integers(0, slots - 1), words).map(lambda drawn: _schedule(*drawn, ticks))


def _verbs(offered: frozenset[Duplex]) -> list[str]:
    """Each as often as it is to be drawn."""
    weights = {NOTHING: 1, "recycle": 4, "hear noise": 3, "hear silence": 1, "hear tone": 1}
    by_capability = {
        Duplex.ADMISSION: {"release": 2, "admit": 3},
        Duplex.FINISH: {"finish": 2},
        Duplex.CANCEL: {"cancel": 2},
        Duplex.PAUSE: {"pause": 5},
        Duplex.SLOT_ERRORS: {"hear nan": 1},
        Duplex.LAB: {"compact": 1, "poison": 1},
    }
    for capability, more in by_capability.items():
        if capability in offered:
            weights |= more
    return [verb for verb, weight in weights.items() for _ in range(weight)]


def _schedule(watched: int, words: list[Word], ticks: int) -> Schedule:
    steps: list[Step] = []
    for verb, slot, gap, guest in words:
        if verb != NOTHING:
            steps.append(_step(verb, slot, Guest(guest), PAUSES[gap % len(PAUSES)]))
        if min(gap, ticks):
            steps.append(Tick(min(gap, ticks)))
            ticks -= min(gap, ticks)
    return Schedule(watched, (*steps, Tick(max(ticks, 1))) if ticks or not steps else tuple(steps))


def _step(verb: str, slot: int, guest: Guest, pause: int) -> Step:
    if verb in _ABOUT_A_SLOT:
        return _ABOUT_A_SLOT[verb](slot)
    if verb.startswith("hear "):
        return Hear(slot, Sound(verb.removeprefix("hear ")))
    others: dict[str, Step] = {"recycle": Recycle(slot, guest), "admit": Admit(guest), "pause": Pause(slot, pause)}
    others |= {"compact": Compact(), "poison": Poison()}
    return others[verb]
