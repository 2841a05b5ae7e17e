"""Plays one schedule: every slot is held to the model, and the watched one to the bits that it gives among inert neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from harness.core.bits import first_divergence
from harness.core.judge import Judge
from harness.core.verdict import Finding, Inconclusive
from harness.duplex.model import Owed, SlotModel, batch
from harness.duplex.protocol import DuplexEngine, Frame, Phase, Session
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
    Resume,
    Schedule,
    Sound,
    Step,
    Tick,
    step_text,
)
from harness.duplex.workload import Workload

LOUD = 0.5
"""Amplitude of noise."""


@dataclass
class _Slot:
    """What one slot is in for: its model, what it hears, whether the next ticks leave it out, and its frames of input so far."""

    model: SlotModel
    sound: Sound = Sound.TONE
    spoiled: bool = False
    paused: bool = False
    clock: int = 0

    def welcome(self, prefill: int) -> None:
        """The next occupant begins."""
        self.model.occupy(prefill)
        self.sound, self.spoiled, self.paused, self.clock = Sound.TONE, False, False, 0


@dataclass
class _Ticked:
    """One tick of the watched slot: the calls before it (method and arguments), its row, whether it was left out, and its frame."""

    calls: list[tuple[str, tuple[Any, ...]]]
    row: torch.Tensor
    live: bool
    frame: Frame


@dataclass
class Player:
    """One schedule on one engine, from a cold boot on. `guests` are the sessions that its words stand for."""

    engine: DuplexEngine
    judge: Judge
    workload: Workload
    guests: Mapping[Guest, Session]
    seed: int
    played: list[Step] = field(default_factory=list)
    """Steps that were begun, down to the tick; all of them at the end."""
    spoken: int = 0
    """LIVE frames of the watched slot."""

    def play(self, schedule: Schedule) -> None:
        """Every step, and then the watched slot among inert neighbours. A finding says at which tick.

        ValueError for a schedule that names a slot that the engine does not have, or a guest.
        """
        __tracebackhide__ = True
        if schedule.highest_slot >= self.engine.slots:
            raise ValueError(f"{schedule}: this engine has slots 0 to {self.engine.slots - 1}")
        self._slots = [_Slot(model) for model in batch(self.engine.slots, self.engine.delay)]
        self._watched, self._ticks = schedule.watched, 0
        self._calls: list[tuple[str, tuple[Any, ...]]] = []
        self._noise = torch.Generator().manual_seed(self.seed)
        self.engine.open()
        record: list[_Ticked] = []
        for step in schedule.steps:
            self.played.append(step)
            if isinstance(step, Tick):
                self._pass(step.ticks, record)
            else:
                _at(f"tick {self._ticks}, {step_text(step)}", partial(self._take, step))
        self._compare(record)

    def _pass(self, ticks: int, record: list[_Ticked]) -> None:
        __tracebackhide__ = True
        for passed in range(1, ticks + 1):
            self.played[-1] = Tick(passed)
            record.append(_at(f"tick {self._ticks}", self._tick))
            self._ticks += 1

    def _take(self, step: Step) -> None:
        """Carry a step out on the engine and on the model; one about a slot that nobody occupies is left out, and so is admission to none."""
        match step:
            case Recycle(slot, guest):
                self._arrives(slot, guest, "recycle", slot, self.guests[guest])
            case Admit(guest):
                self._admit(guest)
            case Compact():
                self._lab().compact()
            case Poison():
                self._lab().poison_free()
            case Hear(slot, Sound.NAN):
                self._slots[slot].spoiled = True
            case Hear(slot, sound):
                self._slots[slot].sound = sound
            case Pause(slot) | Resume(slot):
                self._slots[slot].paused = isinstance(step, Pause)
            case Finish(slot) | Release(slot) | Cancel(slot):
                self._ends(slot, step)

    def _arrives(self, slot: int, guest: Guest, method: str, *arguments: Any) -> int:
        answer = getattr(self.engine, method)(*arguments)
        slot = slot if answer is None else answer
        self._slots[slot].welcome(self.engine.prefill_ticks(self.guests[guest]))
        self._tell(slot, method, *arguments)
        return slot

    def _admit(self, guest: Guest) -> None:
        __tracebackhide__ = True
        free = [slot for slot, state in enumerate(self._slots) if not state.model.occupied]
        if not free:
            return
        slot = self.engine.admit(self.guests[guest])
        self.judge.demand(slot in free, got=f"slot {slot}", expected=f"a free slot: {free}")
        self._slots[slot].welcome(self.engine.prefill_ticks(self.guests[guest]))
        self._tell(slot, "admit", self.guests[guest])

    def _ends(self, slot: int, step: Finish | Release | Cancel) -> None:
        model = self._slots[slot].model
        if not model.occupied:
            return
        getattr(self.engine, step.verb)(slot)
        model.finish() if isinstance(step, Finish) else model.leave()
        self._tell(slot, step.verb, slot)

    def _tell(self, slot: int, method: str, *arguments: Any) -> None:
        if slot == self._watched:
            self._calls.append((method, arguments))

    def _tick(self) -> _Ticked:
        __tracebackhide__ = True
        rows = [self._row(slot) for slot in range(len(self._slots))]
        live = [not (state.paused and state.model.occupied) for state in self._slots]
        frames = self.engine.step(torch.stack(rows), None if all(live) else live)
        self.judge.equal(len(frames), len(self._slots), "frames")
        for slot, (state, frame) in enumerate(zip(self._slots, frames, strict=True)):
            heard = state.model.listens and live[slot]
            self._check(slot, frame, state.model.tick(live[slot], finite=not state.spoiled))
            state.clock += heard
            state.spoiled = False
        calls, self._calls = self._calls, []
        return _Ticked(calls, rows[self._watched], live[self._watched], frames[self._watched])

    def _row(self, slot: int) -> torch.Tensor:
        state, size = self._slots[slot], self.engine.frame_size
        if state.spoiled:
            return torch.full((size,), torch.nan)
        if state.sound is Sound.NOISE:
            return LOUD * (2 * torch.rand(size, generator=self._noise) - 1)
        if state.sound is Sound.SILENCE:
            return torch.zeros(size)
        return self.workload.tone(slot, state.clock, self.engine.sample_rate, size)

    def _check(self, slot: int, frame: Frame, owed: Owed) -> None:
        __tracebackhide__ = True
        epoch = None if owed.epoch is None else frame.epoch
        got = Owed(frame.phase, epoch, None if owed.seq is None else frame.seq)
        self.judge.equal(_said(got), _said(owed), f"slot {slot}", source="the protocol")
        given = (frame.audio is not None, frame.tokens is not None)
        spoken = owed.phase is Phase.LIVE
        self.judge.equal(given, (spoken, spoken and self.engine.streams > 0), f"slot {slot}, {owed.phase.value}: audio, tokens are given")
        self.spoken += spoken and slot == self._watched

    def _compare(self, record: list[_Ticked]) -> None:
        """The watched slot again, its neighbours a default session each that hears silence."""
        __tracebackhide__ = True
        alone = self._alone(record)
        try:
            for tick, (ticked, frame) in enumerate(zip(record, alone, strict=True)):
                _at(f"tick {tick}", partial(self._same, ticked.frame, frame))
        except Finding:
            again = self._alone(record)
            if any(not _alike(x, y) for x, y in zip(alone, again, strict=True)):
                got = f"slot {self._watched} among inert neighbours, played twice, differs from itself"
                raise Inconclusive("CONTROL DIFFERS", got=got, expected="the same bits") from None
            raise

    def _alone(self, record: list[_Ticked]) -> list[Frame]:
        self.engine.open()
        frames = []
        for ticked in record:
            for method, arguments in ticked.calls:
                getattr(self.engine, method)(*arguments)
            pcm = torch.zeros(self.engine.slots, self.engine.frame_size)
            pcm[self._watched] = ticked.row
            live = None if ticked.live else [slot != self._watched for slot in range(self.engine.slots)]
            frames.append(self.engine.step(pcm, live)[self._watched])
        return frames

    def _same(self, got: Frame, expected: Frame) -> None:
        __tracebackhide__ = True
        what, source = f"slot {self._watched}", "the same slot among inert neighbours"
        self.judge.equal((got.phase, got.text), (expected.phase, expected.text), f"{what}: phase, text", source=source)
        for name in ("tokens", "audio"):
            wanted = getattr(expected, name)
            if wanted is not None:
                self.judge.same_bits(getattr(got, name), wanted, f"{what}: {name}", source=source)

    def _lab(self) -> Any:
        if self.engine.lab is None:
            raise ValueError("compact and poison ask for the engine's lab, and it has none")
        return self.engine.lab


def _said(owed: Owed) -> str:
    """`live, epoch 1, seq 3`."""
    parts = [owed.phase.value, *(f"{name} {n}" for name, n in (("epoch", owed.epoch), ("seq", owed.seq)) if n is not None)]
    return ", ".join(parts)


def _alike(here: Frame, there: Frame) -> bool:
    if (here.phase, here.text) != (there.phase, there.text):
        return False
    pairs = ((here.audio, there.audio), (here.tokens, there.tokens))
    return all((x is y) if x is None or y is None else first_divergence(x, y, finite=False) is None for x, y in pairs)


def _at(place: str, action: Callable[[], Any]) -> Any:
    """Say in a finding where it was found."""
    __tracebackhide__ = True
    try:
        return action()
    except Finding as found:
        found.got = f"{place}: {found.got}"
        raise
