"""Plays a script on an engine, and keeps what every slot gave on every tick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from harness.core.verdict import ClaimBroken
from harness.duplex.protocol import DuplexEngine, Frame, Phase
from harness.duplex.script import Admit, Event, Hear, LabCall, Leave, Pause, Recycle, Script, Short
from harness.duplex.sounds import Sound

CONVERSING = (Phase.WARMUP, Phase.LIVE)
"""Phases in which the caller is heard: ticks of the conversation's own clock."""


class Played(Mapping[str, Any]):
    """What one run gave: `frames[tick][slot]`; and as a trace, each field of each frame under a label such as `audio[tick 23, slot 2]`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.frames: list[list[Frame]] = []
        self.admitted: list[int] = []
        """The slots that the script's `Admit` events were given, in their order."""
        self._trace: dict[str, Any] = {}

    def add(self, frames: Sequence[Frame]) -> None:
        """Keep one tick."""
        tick = len(self.frames)
        self.frames.append(list(frames))
        for slot, frame in enumerate(frames):
            # The phase is always there; a field that is None has no label, and its absence is a difference too.
            fields = {name: value for name, value in vars(frame).items() if value is not None}
            self._trace.update({f"{name}[tick {tick}, slot {slot}]": value for name, value in fields.items()})

    def of(self, slot: int, *, epoch: int | None = None) -> list[Frame]:
        """Every frame of one slot, a tick each; `epoch`: those of one occupant."""
        return [frames[slot] for frames in self.frames if epoch in (None, frames[slot].epoch)]

    def live(self, slot: int, *, epoch: int | None = None) -> list[Frame]:
        """The frames of the conversation alone."""
        return [frame for frame in self.of(slot, epoch=epoch) if frame.phase is Phase.LIVE]

    def text(self, slot: int, *, epoch: int | None = None) -> str:
        """What the agent said, in text."""
        return "".join(frame.text or "" for frame in self.of(slot, epoch=epoch))

    def __getitem__(self, label: str) -> Any:
        return self._trace[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trace)

    def __len__(self) -> int:
        return len(self._trace)


class Driver:
    """One run of a script: the sounds, each on its conversation's clock, and the pauses that are under way.

    The clock of a slot counts the ticks on which its occupant was heard (WARMUP or LIVE), and is 0 again for the next occupant.
    """

    def __init__(self, engine: DuplexEngine, script: Script) -> None:
        if len(script.hears) != engine.slots:
            raise ValueError(f"the script has sounds for {len(script.hears)} slots; the engine has {engine.slots}")
        self.engine = engine
        self.played = Played(script)
        self._sounds: list[Sound] = list(script.hears)
        self._clocks = [0] * engine.slots
        self._paused = [0] * engine.slots
        self._valid: dict[int, int] = {}

    def play(self) -> Played:
        """From a fresh `open` to the script's last tick."""
        script = self.played.script
        self.engine.open()
        for tick in range(script.ticks):
            for event in script.on(tick):
                self.do(event)
            self.step()
        return self.played

    def step(self) -> None:
        """One tick of the engine."""
        engine, slots = self.engine, range(self.engine.slots)
        pcm = torch.stack([self._sounds[s].frame(self._clocks[s], engine.sample_rate, engine.frame_size) for s in slots])
        live = [self._paused[slot] == 0 for slot in slots]
        how: dict[str, Any] = {} if all(live) else {"live": live}
        if self._valid:
            how["valid_samples"] = [self._valid.get(slot, engine.frame_size) for slot in slots]
        frames = engine.step(pcm, **how)
        if len(frames) != engine.slots:
            raise ClaimBroken("WRONG ANSWER", got=f"step gave {len(frames)} frames", expected=f"one for each of {engine.slots} slots")
        self.played.add(frames)
        for slot, frame in enumerate(frames):
            self._clocks[slot] += frame.phase in CONVERSING
            self._paused[slot] = max(0, self._paused[slot] - 1)
        self._valid = {}

    def do(self, event: Event) -> None:
        """What the event says, before the next tick."""
        match event:
            case Recycle(slot, session, sound):
                self.engine.recycle(slot, session)
                self._begin(slot, sound)
            case Admit(session, sound):
                slot = self.engine.admit(session)
                self.played.admitted.append(slot)
                self._begin(slot, sound)
            case Leave(slot, how):
                getattr(self.engine, how)(slot)
            case Pause(slot, ticks):
                self._paused[slot] = ticks
            case Hear(slot, sound):
                self._sounds[slot] = sound
            case Short(slot, samples):
                self._valid[slot] = samples
            case LabCall(name, arguments):
                getattr(self.engine.lab, name)(*arguments)

    def _begin(self, slot: int, sound: Sound | None) -> None:
        self._clocks[slot] = 0
        self._sounds[slot] = sound or self._sounds[slot]


def play(engine: DuplexEngine, script: Script) -> Played:
    """Run the script from a fresh `open`."""
    return Driver(engine, script).play()
