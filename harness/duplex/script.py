"""Scripts: what happens to an engine's slots, tick by tick, from `open` on. Values that hash, so that runs can be kept by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from harness.duplex.protocol import Session
from harness.duplex.sounds import Sound

DEFAULT = Session()


@dataclass(frozen=True)
class Recycle:
    """The next occupant takes the slot, and hears `sound`; None: what the slot heard before, from its beginning."""

    slot: int
    session: Session = DEFAULT
    sound: Sound | None = None

    def __str__(self) -> str:
        return f"slot {self.slot} recycled{told(self.session, self.sound)}"


@dataclass(frozen=True)
class Admit:
    """A session is given a free slot, which the engine chooses."""

    session: Session = DEFAULT
    sound: Sound | None = None

    def __str__(self) -> str:
        return f"a session admitted{told(self.session, self.sound)}"


@dataclass(frozen=True)
class Leave:
    """The occupant goes: `how` is the engine's call, release, cancel or finish."""

    slot: int
    how: str = "release"

    def __str__(self) -> str:
        return f"{self.how} of slot {self.slot}"


@dataclass(frozen=True)
class Pause:
    """The slot is left out of this tick and the `ticks - 1` after it."""

    slot: int
    ticks: int

    def __str__(self) -> str:
        return f"slot {self.slot} paused for {self.ticks} ticks"


@dataclass(frozen=True)
class Hear:
    """From now on the slot hears another sound, whose clock is still that of the conversation."""

    slot: int
    sound: Sound

    def __str__(self) -> str:
        return f"slot {self.slot} hears {self.sound}"


@dataclass(frozen=True)
class Short:
    """On this tick only the first `samples` samples of the slot are the caller's."""

    slot: int
    samples: int

    def __str__(self) -> str:
        return f"slot {self.slot} hears {self.samples} samples"


@dataclass(frozen=True)
class LabCall:
    """A call of the engine's lab, such as compact, poison_free, or fail_next with an operation."""

    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"lab.{self.name}({', '.join(map(repr, self.arguments))})"


Event = Recycle | Admit | Leave | Pause | Hear | Short | LabCall


@dataclass(frozen=True)
class Script:
    """`ticks` steps from a fresh `open`. Slot s hears `hears[s]`; `events` come before the step of their tick, in the order given."""

    ticks: int
    hears: tuple[Sound, ...]
    events: tuple[tuple[int, Event], ...] = ()

    def at(self, tick: int, *events: Event) -> Script:
        """The same with more events on one tick."""
        return replace(self, events=(*self.events, *((tick, event) for event in events)))

    def hearing(self, sounds: dict[int, Sound]) -> Script:
        """The same with other sounds from the beginning."""
        return replace(self, hears=tuple(sounds.get(slot, sound) for slot, sound in enumerate(self.hears)))

    def on(self, tick: int) -> list[Any]:
        """The events before the step of this tick."""
        return [event for when, event in self.events if when == tick]

    def against(self, other: Script) -> str:
        """What this script does that the other does not, in words for the text of a failure."""
        said = [
            f"slot {slot} hears {mine}" for slot, (mine, theirs) in enumerate(zip(self.hears, other.hears, strict=True)) if mine != theirs
        ]
        said += [f"{event} at tick {tick}" for tick, event in self.events if (tick, event) not in other.events]
        return "; ".join(said)


def told(session: Session, sound: Sound | None) -> str:
    """What is not the default of a new occupant, in words."""
    said = [f"{name} {value!r}" for name, value in vars(session).items() if value is not None]
    said += [f"hearing {sound}"] if sound is not None else []
    return f" ({', '.join(said)})" if said else ""
