"""Schedules: what happens to a few requests at one stage boundary, step by step, as text that a person reads and a replay parses.

send a 10; start a; fail copy; consume a; restart receiver
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from harness.core.steps import Steps, step_text


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
STEPS = Steps[Step](
    (Send, Start, Consume, Receive, Abort, Fail, Hold, Release, Advance, Stop, Restart), called={"request": "a request's name, such as a"}
)


@dataclass(frozen=True)
class Schedule:
    """Steps in their order. Its text is one line, steps apart by semicolons: a verb, then its words."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "; ".join(map(step_text, self.steps))

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """The schedule that has this text. ValueError names the step that cannot be read, and what could stand there."""
        steps = STEPS.parse(text)
        if not steps:
            raise ValueError("a schedule has at least one step, as in: send a 10; start a; consume a")
        return cls(steps)

    @property
    def requests(self) -> list[str]:
        """The requests that it names, in the order in which they come."""
        return list(dict.fromkeys(step.request for step in self.steps if hasattr(step, "request")))
