"""What an INCONCLUSIVE verdict says of the machine, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.core.doctor.repeat import Repeat
from harness.core.registry import Selection

OPTION = "sdpa"
"""The option by which an engine is given its attention backend."""


def advice(repeats: Sequence[Repeat], selection: Selection) -> str:
    """Whether the operations of `repeats`, all of one device, repeat themselves there, and which option avoids those that do not.

    What the engine's own attention backend came to is told first.
    """
    device = repeats[0].device
    if all(r.missing for r in repeats):
        return f"{device} could not be asked: {repeats[0].missing}"
    option = selection.spec.options.get(OPTION)
    used = selection.options.get(OPTION, option.default if option else "default")
    attention = {r.way: r for r in repeats if r.operation == "attention"}
    ours = attention.get(used)
    if ours is not None and ours.differs:
        good = [way for way, r in attention.items() if r.holds]
        told = f"attention={used} does not repeat itself bit for bit in a ring-KV loop on {device} (step {min(ours.differs.values())})"
        return f"{told}; {_others(good)}{_remedy(good, selection)}"
    off = [r for r in repeats if r.differs and r.operation != "attention"]
    if off:
        named = ", ".join(f"{r.operation} {r.way} (step {min(r.differs.values())})" for r in off)
        return f"on {device} these do not repeat themselves bit for bit: {named}"
    asked = f"attention={used}, " if ours is not None and ours.holds else ""
    good = [way for way, r in attention.items() if r.holds and way not in (used, "default")]
    # A kernel that differs in one call of many thousands can pass a short loop.
    other = f", or too rare to be seen here{_remedy(good, selection)}" if used == "default" and _remedy(good, selection) else ""
    return f"{asked}matrix products and convolutions repeat themselves bit for bit on {device}: the difference is the engine's own{other}"


def _others(good: Sequence[str]) -> str:
    if not good:
        return "nor does any other"
    return f"{good[0]} does" if len(good) == 1 else f"{', '.join(good[:-1])} and {good[-1]} do"


def _remedy(good: Sequence[str], selection: Selection) -> str:
    """The first of the good ones that the engine can be given; the quicker ones come before math."""
    option = selection.spec.options.get(OPTION)
    able = [way for way in sorted(good, key="math".__eq__) if option and way in option.choices]
    if not able:
        return ""
    return f": --engine {replace(selection, options=dict(sorted({**selection.options, OPTION: able[0]}.items()))).label}"
