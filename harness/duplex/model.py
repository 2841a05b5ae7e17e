"""What each slot owes on each tick: its phase, occupant and count, in plain integers, written from the protocol alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.duplex.protocol import Frame, Phase, Session
from harness.duplex.script import Admit, Event, Hear, Leave, Pause, Recycle
from harness.duplex.sounds import Sound, Spoiled


@dataclass(frozen=True)
class Owed:
    """What a slot's frame must say of itself. Nothing belongs to a free slot, and only LIVE frames are counted: None is not judged."""

    phase: Phase
    epoch: int | None = None
    seq: int | None = None

    def __str__(self) -> str:
        return ", ".join([self.phase.value, *(f"{name} {n}" for name, n in (("epoch", self.epoch), ("seq", self.seq)) if n is not None)])

    def said_by(self, frame: Frame) -> str:
        """What the frame says of all that is judged, in the words of `str`."""
        return str(Owed(frame.phase, None if self.epoch is None else frame.epoch, None if self.seq is None else frame.seq))


@dataclass
class SlotModel:
    """One slot since `open`, where its first occupant was live at once.

    `prefill` counts the ticks of the occupant's prefill that are left, `heard` its ticks of input, `ticked` those and the ticks of its
    drain, `given` its LIVE frames; `paused` the next ticks that leave it out.
    """

    delay: int
    sound: Sound
    epoch: int = 0
    prefill: int = 0
    heard: int = 0
    ticked: int = 0
    given: int = 0
    paused: int = 0
    finishing: bool = False
    occupied: bool = True

    def occupy(self, prefill: int, sound: Sound | None) -> None:
        """The next occupant takes the slot."""
        self.epoch += 1
        self.sound = sound or self.sound
        self.prefill, self.heard, self.ticked, self.given, self.finishing, self.occupied = prefill, 0, 0, 0, False, True

    def end(self, how: str) -> None:
        """By the engine's call of this name: after `finish` the occupant stays for what it is still to be given, else it is gone."""
        self.finishing = how == "finish"
        self.occupied = self.occupied and self.finishing

    def tick(self) -> Owed:
        """What the slot gives on this tick."""
        paused, self.paused = self.paused > 0, max(0, self.paused - 1)
        if not self.occupied:
            return Owed(Phase.FREE)
        if paused:
            return Owed(Phase.PAUSED, self.epoch)
        drained = self.finishing and (self.prefill > 0 or self.given == self.heard)
        if drained or self._fails():
            self.occupied = False
            return Owed(Phase.DRAINED if drained else Phase.FAILED, self.epoch)
        if self.prefill:
            self.prefill -= 1
            return Owed(Phase.PREFILL, self.epoch)
        return self._converses()

    def _fails(self) -> bool:
        """Whether the caller is heard, and samples of this frame are not finite."""
        listens = not self.finishing and self.prefill == 0
        return listens and isinstance(self.sound, Spoiled) and self.sound.at == self.ticked and not math.isfinite(self.sound.value)

    def _converses(self) -> Owed:
        self.heard += not self.finishing
        self.ticked += 1
        if self.ticked <= self.delay:
            return Owed(Phase.WARMUP, self.epoch)
        self.given += 1
        return Owed(Phase.LIVE, self.epoch, self.given - 1)


class BatchModel:
    """All slots, as `open` leaves them: a default session each, its prefill done, hearing `hears`."""

    def __init__(self, delay: int, prefill_ticks: Callable[[Session], int], hears: Sequence[Sound]) -> None:
        self.slots = [SlotModel(delay, sound) for sound in hears]
        self._prefill_ticks = prefill_ticks

    def do(self, event: Event, admitted: int | None = None) -> None:
        """What the event says, before the next tick; `admitted` is the slot that an `Admit` was given. Others change no phase."""
        match event:
            case Recycle(slot, session, sound):
                self.slots[slot].occupy(self._prefill_ticks(session), sound)
            case Admit(session, sound):
                assert admitted is not None
                self.slots[admitted].occupy(self._prefill_ticks(session), sound)
            case Leave(slot, how):
                self.slots[slot].end(how)
            case Pause(slot, ticks):
                self.slots[slot].paused = ticks
            case Hear(slot, sound):
                self.slots[slot].sound = sound

    def tick(self) -> list[Owed]:
        """What every slot gives on this tick."""
        return [slot.tick() for slot in self.slots]

    @property
    def free(self) -> list[int]:
        """Slots that nobody occupies."""
        return [number for number, slot in enumerate(self.slots) if not slot.occupied]
