"""Schedules: what happens to the slots of one batch, tick by tick, as text that a person reads and a replay parses.

watch 1; tick 10; recycle 1 voice; hear 0 noise; tick 4; pause 1 3; tick 16
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from harness.core.steps import Steps, step_text


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
STEPS = Steps[Step](
    (Tick, Recycle, Admit, Release, Finish, Cancel, Pause, Hear, Compact, Poison), least={"slot": 0}, called={"slot": "a slot's number"}
)
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
        first, _, rest = text.partition(";")
        first = " ".join(first.split())
        watch, steps = _WATCH.fullmatch(first), STEPS.parse(rest)
        if watch is None or not steps:
            raise ValueError(f"{first!r}: a schedule begins with the slot to watch, as in: watch 1; tick 10; recycle 1 voice; tick 20")
        return cls(int(watch[1]), steps)

    def without(self, place: int) -> Iterator[Schedule]:
        """Shorter ones: without this step, and, where ticks pass in it, with one alone. None where there is no such step."""
        before, here, after = self.steps[:place], self.steps[place : place + 1], self.steps[place + 1 :]
        if here and (before or after):
            yield replace(self, steps=(*before, *after))
        if here and isinstance(here[0], Tick) and here[0].ticks > 1:
            yield replace(self, steps=(*before, Tick(1), *after))

    @property
    def highest_slot(self) -> int:
        """The highest slot that it names."""
        return max([self.watched, *(step.slot for step in self.steps if hasattr(step, "slot"))])
