"""What each slot owes on each tick: its phase, occupant and count, in plain integers, written from the protocol alone."""

from __future__ import annotations

from dataclasses import dataclass

from harness.duplex.protocol import Frame, Phase


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
    drain, `given` its LIVE frames.
    """

    delay: int
    epoch: int = 0
    prefill: int = 0
    heard: int = 0
    ticked: int = 0
    given: int = 0
    finishing: bool = False
    occupied: bool = True

    def occupy(self, prefill: int) -> None:
        """The next occupant takes the slot (recycle, admit)."""
        self.epoch += 1
        self.prefill, self.heard, self.ticked, self.given, self.finishing, self.occupied = prefill, 0, 0, 0, False, True

    def leave(self) -> None:
        """The occupant is gone at once (release, cancel)."""
        self.occupied = False

    def finish(self) -> None:
        """The input has ended."""
        self.finishing = True

    @property
    def listens(self) -> bool:
        """Whether the next tick that does not leave the slot out takes a frame of input."""
        return self.occupied and not self.finishing and self.prefill == 0

    def tick(self, live: bool = True, finite: bool = True) -> Owed:
        """What the slot gives on this tick. `finite` says so of the samples in its row, which only a slot that listens looks at."""
        if not self.occupied:
            return Owed(Phase.FREE)
        if not live:
            return Owed(Phase.PAUSED, self.epoch)
        drained = self.finishing and (self.prefill > 0 or self.given == self.heard)
        if drained or (self.listens and not finite):
            self.occupied = False
            return Owed(Phase.DRAINED if drained else Phase.FAILED, self.epoch)
        if self.prefill:
            self.prefill -= 1
            return Owed(Phase.PREFILL, self.epoch)
        return self._converses()

    def _converses(self) -> Owed:
        self.heard += not self.finishing
        self.ticked += 1
        if self.ticked <= self.delay:
            return Owed(Phase.WARMUP, self.epoch)
        self.given += 1
        return Owed(Phase.LIVE, self.epoch, self.given - 1)


def batch(slots: int, delay: int) -> list[SlotModel]:
    """A model of every slot, as `open` leaves them: a default session each, its prefill done."""
    return [SlotModel(delay) for _ in range(slots)]
