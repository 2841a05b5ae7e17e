"""Schedules: what happens to a few prompts on one server, step by step, as text that a person reads and a replay parses.

submit a 100 4; pump 2; abort a; fail store; generate a 100 4; evict; generate a 68 1
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from harness.core.steps import Steps, step_text


class Text(str, Enum):
    """What a prompt is cut from, from its first token on."""

    A = "a"
    B = "b"
    """Begins as `a` does, for one chunk."""
    C = "c"
    """Another from its first token on."""
    SALTED = "salted"
    """The tokens of `a` under a salt."""


class Copying(str, Enum):
    """An operation of the lab."""

    STORE = "store"
    LOAD = "load"


@dataclass(frozen=True)
class Submit:
    """Queue the first `tokens` tokens of the text, for `new` new ones."""

    verb: ClassVar[str] = "submit"
    text: Text
    tokens: int
    new: int


@dataclass(frozen=True)
class Generate:
    """Submit it, and pump until it is done."""

    verb: ClassVar[str] = "generate"
    text: Text
    tokens: int
    new: int


@dataclass(frozen=True)
class Pump:
    """Let steps pass."""

    verb: ClassVar[str] = "pump"
    steps: int


@dataclass(frozen=True)
class Abort:
    """End the request of this text that was submitted last. Left out where it is done, as in all steps that name one."""

    verb: ClassVar[str] = "abort"
    text: Text


@dataclass(frozen=True)
class Retract:
    """Take its pages away; it goes on later."""

    verb: ClassVar[str] = "retract"
    text: Text


@dataclass(frozen=True)
class Evict:
    """Let go of what the device keeps for later."""

    verb: ClassVar[str] = "evict"


@dataclass(frozen=True)
class Flush:
    """Forget all that is kept. Left out while a request is not done."""

    verb: ClassVar[str] = "flush"


@dataclass(frozen=True)
class Settle:
    """Return once every write-back has landed."""

    verb: ClassVar[str] = "settle"


@dataclass(frozen=True)
class Fail:
    """The next such copy fails."""

    verb: ClassVar[str] = "fail"
    what: Copying


@dataclass(frozen=True)
class Lag:
    """Such copies take `ticks` pumps longer from now on; 0 ends the lag."""

    verb: ClassVar[str] = "lag"
    what: Copying
    ticks: int


@dataclass(frozen=True)
class Poison:
    """NaN in all memory that nobody may read."""

    verb: ClassVar[str] = "poison"


Step = Submit | Generate | Pump | Abort | Retract | Evict | Flush | Settle | Fail | Lag | Poison
STEPS = Steps[Step]((Submit, Generate, Pump, Abort, Retract, Evict, Flush, Settle, Fail, Lag, Poison), least={"ticks": 0})


@dataclass(frozen=True)
class Schedule:
    """Steps in their order, on a server that keeps nothing yet. Its text is one line, steps apart by semicolons: a verb, then its words."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "; ".join(map(step_text, self.steps))

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """The schedule that has this text. ValueError names the step that cannot be read, and what could stand there."""
        steps = STEPS.parse(text)
        if not steps:
            raise ValueError("a schedule has at least one step, as in: generate a 100 4; evict; generate a 100 4")
        return cls(steps)
