"""Schedules: what happens to the slots of one batch, tick by tick, as text that a person reads and a replay parses.

watch 1; tick 10; recycle 1 voice; hear 0 noise; tick 4; pause 1 3; tick 16
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar, get_type_hints

from harness.core.names import unknown


class Guest(str, Enum):
    """Who the next occupant of a slot is."""

    DEFAULT = "default"
    PERSONA = "persona"
    """With a persona that is not the default."""
    VOICE = "voice"
    """With a voice that is not the default."""
    SAMPLED = "sampled"
    """With a seed."""


class Sound(str, Enum):
    """What a caller says."""

    TONE = "tone"
    """The workload's tone of the slot: what every occupant says at first."""
    NOISE = "noise"
    SILENCE = "silence"
    NAN = "nan"
    """The next frame that is heard is not finite."""


@dataclass(frozen=True)
class Tick:
    """Let ticks pass."""

    verb: ClassVar[str] = "tick"
    ticks: int


@dataclass(frozen=True)
class Recycle:
    """The next occupant takes the slot."""

    verb: ClassVar[str] = "recycle"
    slot: int
    guest: Guest


@dataclass(frozen=True)
class Admit:
    """The next occupant takes a free slot, which the engine chooses. Left out where none is free."""

    verb: ClassVar[str] = "admit"
    guest: Guest


@dataclass(frozen=True)
class Release:
    """The occupant leaves."""

    verb: ClassVar[str] = "release"
    slot: int


@dataclass(frozen=True)
class Finish:
    """The occupant's input has ended."""

    verb: ClassVar[str] = "finish"
    slot: int


@dataclass(frozen=True)
class Cancel:
    """The occupant is dropped."""

    verb: ClassVar[str] = "cancel"
    slot: int


@dataclass(frozen=True)
class Pause:
    """The occupant is left out of the next ticks, and goes on after them."""

    verb: ClassVar[str] = "pause"
    slot: int
    ticks: int


@dataclass(frozen=True)
class Hear:
    """What the slot hears from now on."""

    verb: ClassVar[str] = "hear"
    slot: int
    sound: Sound


@dataclass(frozen=True)
class Compact:
    """The lab moves the sessions to other rows."""

    verb: ClassVar[str] = "compact"


@dataclass(frozen=True)
class Poison:
    """The lab fills with NaN what no session may read."""

    verb: ClassVar[str] = "poison"


Step = Tick | Recycle | Admit | Release | Finish | Cancel | Pause | Hear | Compact | Poison
STEPS: dict[str, type[Step]] = {step.verb: step for step in (Tick, Recycle, Admit, Release, Finish, Cancel, Pause, Hear, Compact, Poison)}
_WATCH = re.compile(r"watch (\d+)")


@dataclass(frozen=True)
class Schedule:
    """Steps in their order, after a cold boot. The slot `watched` is compared with itself among inert neighbours.

    Its text is one line, steps apart by semicolons: a verb, then its words; first of all `watch` and the slot.
    """

    watched: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "; ".join([f"watch {self.watched}", *map(step_text, self.steps)])

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """The schedule that has this text. ValueError names the step that cannot be read, and what could stand there."""
        first, *rest = [" ".join(step.split()) for step in text.split(";")]
        watch = _WATCH.fullmatch(first)
        steps = tuple(_parse_step(step.split()) for step in rest if step)
        if watch is None or not steps:
            raise ValueError(f"{first!r}: a schedule begins with the slot to watch, as in: watch 1; tick 10; recycle 1 voice; tick 20")
        return cls(int(watch[1]), steps)

    @property
    def highest_slot(self) -> int:
        """The highest slot that it names."""
        return max([self.watched, *(step.slot for step in self.steps if hasattr(step, "slot"))])


def step_text(step: Step) -> str:
    """`recycle 1 voice`."""
    values = [getattr(step, field.name) for field in fields(step)]
    return " ".join([step.verb, *(value.value if isinstance(value, Enum) else str(value) for value in values)])


def _parse_step(words: list[str]) -> Step:
    verb, given = words[0], words[1:]
    if verb not in STEPS:
        raise ValueError(f"{' '.join(words)!r}: {unknown('step', verb, STEPS)}")
    kind = STEPS[verb]
    names = [field.name for field in fields(kind)]
    if len(names) != len(given):
        raise ValueError(f"{' '.join(words)!r}: write {' '.join([verb, *(name.upper() for name in names)])}")
    hints = get_type_hints(kind)
    return kind(**{name: _parse_word(name, hints[name], word, words) for name, word in zip(names, given, strict=True)})


def _parse_word(name: str, kind: type, word: str, words: list[str]) -> object:
    if kind is int and word.isdecimal() and int(word) >= (name == "ticks"):
        return int(word)
    if issubclass(kind, Enum) and word in (member.value for member in kind):
        return kind(word)
    members = " or ".join(member.value for member in kind) if issubclass(kind, Enum) else ""
    wanted = members or {"slot": "a slot's number", "ticks": "a number above 0"}[name]
    raise ValueError(f"{' '.join(words)!r}: {word!r} stands where {wanted} should")
