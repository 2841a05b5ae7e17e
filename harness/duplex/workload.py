"""The constants of the duplex checks: the seeds' figures, and the sounds made from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Workload:
    """Overridable as `--set duplex.<name>=<value>`. Sizes count slots and ticks; frequencies are in Hz, times in milliseconds.

    `live_ticks`, `recycle_at`, `recycled`, `amplitude`, `base_hz`, `step_hz`, `at_least`, `later`, `later_above`, `opening`,
    `opening_below`, `letters`, `answer_ticks`, `silent_ticks` and `budget_ms` are the seeds'. `schedules` and `soak_schedules` are drawn,
    of `schedule_ticks` and `soak_ticks` ticks each; `schedules_elsewhere` on an engine without a lab, whose ticks take their time.

    In the checks that are not the seeds', something is done at tick `act_at`, and `after_ticks` of conversation follow. What may depend
    on the tick is tried on `ring_phases` ticks in a row, more than the longest codebook delay. `pause_ticks` is a pause, no multiple of
    the columns of a delay ring. Rings are wrapped where the engine's window is at most `wrap_at_most`. A known answer is whole
    `known_ticks` after its question. `question` is the recording that is asked; "" leaves it to PPLEX_QUESTION_WAV and to the engine.
    `batches` are those of the budget's sweep, the seeds' like its ticks: `warmup_ticks`, then `timed_ticks`.
    """

    live_ticks: int = 40
    recycle_at: int = 10
    recycled: int = 1
    amplitude: float = 0.12
    base_hz: float = 180.0
    step_hz: float = 90.0
    at_least: int = 20
    later: int = 4
    later_above: float = 5e-2
    opening: int = 4
    opening_below: float = 2e-2
    letters: int = 15
    silent_ticks: int = 5
    answer_ticks: int = 120
    budget_ms: float = 80.0
    question: str = ""
    known_ticks: int = 20
    batches: str = "2,4,8"
    warmup_ticks: int = 10
    timed_ticks: int = 100
    act_at: int = 6
    after_ticks: int = 8
    ring_phases: int = 4
    pause_ticks: int = 5
    wrap_at_most: int = 128
    sessions: int = 200
    schedules: int = 5
    schedules_elsewhere: int = 3
    schedule_ticks: int = 40
    soak_schedules: int = 300
    soak_ticks: int = 200

    def __post_init__(self) -> None:
        least = (self.live_ticks, self.recycle_at, self.at_least, self.schedules, self.schedule_ticks, self.soak_schedules, self.sessions)
        if min(*least, self.timed_ticks) < 1:
            raise ValueError("live_ticks, recycle_at, at_least, sessions, timed_ticks, schedules and their ticks are at least 1")
        if not all(word.strip().isdecimal() and int(word) for word in self.batches.split(",")):
            raise ValueError(f"batches = {self.batches!r}: numbers of slots with commas between, such as 2,4,8")
        if not self.recycle_at < self.live_ticks:
            at, ticks = self.recycle_at, self.live_ticks
            raise ValueError(f"recycle_at = {at}: recycle before live_ticks = {ticks}, or there is nothing to compare")

    @property
    def sweep(self) -> list[int]:
        """`batches` as numbers; at least 2 slots each, since one alone is no batch."""
        return [max(int(word), 2) for word in self.batches.split(",")]

    def tone(self, slot: int, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        """Frame `tick` of what slot `slot` hears: f32[frame_size], phase-continuous on the slot's own clock."""
        hertz = self.base_hz + self.step_hz * slot
        samples = np.arange(tick * frame_size, (tick + 1) * frame_size, dtype=np.float64)
        # Not torch's sine: its threads, in between the ticks of an engine that has its own, wait for one another on a busy machine.
        return torch.from_numpy((self.amplitude * np.sin(2 * math.pi * hertz * samples / sample_rate)).astype(np.float32))
