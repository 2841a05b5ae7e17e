"""Schedules: what happens to a few requests at one stage boundary, step by step, as text that a person reads and a replay parses.

send a 10; start a; fail copy; consume a; restart receiver
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar, get_type_hints

from harness.core.names import unknown


class Side(str, Enum):
    """The managers of a boundary."""

    SENDER = "sender"
    RECEIVER = "receiver"


class Failing(str, Enum):
    """What is made to fail."""

    COPY = "copy"
    """The next copy that begins inside the engine, through its lab."""
    GET = "get"
    """Every get of the connector, until the next consume or receive has its answer."""


@dataclass(frozen=True)
class Send:
    """A new payload of `tokens` tokens under the request's id."""

    verb: ClassVar[str] = "send"
    request: str
    tokens: int


@dataclass(frozen=True)
class Start:
    """Begin the request's prefetch."""

    verb: ClassVar[str] = "start"
    request: str


@dataclass(frozen=True)
class Consume:
    """Take what was prefetched."""

    verb: ClassVar[str] = "consume"
    request: str


@dataclass(frozen=True)
class Receive:
    """Fetch in the foreground."""

    verb: ClassVar[str] = "receive"
    request: str


@dataclass(frozen=True)
class Abort:
    """The receiver gives the request up."""

    verb: ClassVar[str] = "abort"
    request: str


@dataclass(frozen=True)
class Fail:
    """Make a part of the next transfer fail."""

    verb: ClassVar[str] = "fail"
    what: Failing


@dataclass(frozen=True)
class Hold:
    """From now on gets wait at the connector, so that what is started stays under way."""

    verb: ClassVar[str] = "hold"


@dataclass(frozen=True)
class Release:
    """Let held gets go on. A step that waits for a transfer (consume, receive, advance, stop, restart receiver) does so first."""

    verb: ClassVar[str] = "release"


@dataclass(frozen=True)
class Advance:
    """Let ticks of the engine's virtual clock pass."""

    verb: ClassVar[str] = "advance"
    ticks: int


@dataclass(frozen=True)
class Stop:
    """Stop prefetching on the receiver, until it restarts."""

    verb: ClassVar[str] = "stop"


@dataclass(frozen=True)
class Restart:
    """Close one side, and deploy another in its place over the same connector."""

    verb: ClassVar[str] = "restart"
    side: Side


Step = Send | Start | Consume | Receive | Abort | Fail | Hold | Release | Advance | Stop | Restart
STEPS: dict[str, type[Step]] = {
    step.verb: step for step in (Send, Start, Consume, Receive, Abort, Fail, Hold, Release, Advance, Stop, Restart)
}
_REQUEST = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True)
class Schedule:
    """Steps in their order. Its text is one line, steps apart by semicolons: a verb, then its words."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "; ".join(map(step_text, self.steps))

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """The schedule that has this text. ValueError names the step that cannot be read, and what could stand there."""
        words = [step.split() for step in text.split(";")]
        if not any(words):
            raise ValueError("a schedule has at least one step, as in: send a 10; start a; consume a")
        return cls(tuple(_parse_step(step) for step in words if step))

    @property
    def requests(self) -> list[str]:
        """The requests that it names, in the order in which they come."""
        return list(dict.fromkeys(step.request for step in self.steps if hasattr(step, "request")))


def step_text(step: Step) -> str:
    """`send a 10`."""
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
    return kind(**{name: _parse_word(hints[name], word, words) for name, word in zip(names, given, strict=True)})


def _parse_word(kind: type, word: str, words: list[str]) -> object:
    if kind is str and _REQUEST.fullmatch(word):
        return word
    if kind is int and word.isdecimal() and int(word) > 0:
        return int(word)
    if issubclass(kind, Enum) and word in (member.value for member in kind):
        return kind(word)
    members = " or ".join(member.value for member in kind) if issubclass(kind, Enum) else ""
    wanted = members or {str: "a request's name, such as a", int: "a number above 0"}[kind]
    raise ValueError(f"{' '.join(words)!r}: {word!r} stands where {wanted} should")
