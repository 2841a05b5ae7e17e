"""What `assay bench duplex` measures: how long a tick takes by batch size, beside the floor that the weights set.

A batch of silence, as in the seed: the engine is opened, ticks warm it up, and then ticks are timed, each from the call to the return with
the device synchronised at both ends. What it gave is looked at too: an engine that says nothing would be the quickest.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.core import guard
from harness.core.clock import Clock
from harness.core.doctor.rates import synchronize
from harness.core.registry import Selection
from harness.core.spec import Profile
from harness.core.verdict import ClaimBroken, Unavailable
from harness.duplex.protocol import DuplexEngine, Frame, Phase

WARMUP_TICKS, TIMED_TICKS = 10, 100
"""The seed's. An engine's own `delay` comes on top of the warm-up."""
LEAST_BATCH = 2
"""The seed's batches are max(B, 2)."""
DEADLINE = 600.0
"""Seconds that the ticks of one batch may take: 70 times their budget."""
GIB = 1 << 30


class NothingTimed(ClaimBroken):
    """The engine did not do what was to be timed; `got` says what it did."""

    def __init__(self, got: str) -> None:
        super().__init__("NOTHING TIMED", got=got)


@dataclass(frozen=True)
class Pace:
    """One engine at one batch size. Times are milliseconds a tick over `ticks` ticks.

    `p99` is the least time that 99 % of the ticks kept. `real_time`: `mean` over the time of the audio in a tick. `peak_gib`: on a card the
    most that torch had allocated there from `open` on, weights included; on a CPU what the process has grown by since before the build, 0
    where it used what others had left; None where the system does not tell. `floor`: the weights' bytes over the memory's bandwidth; caches
    that hold the weights may go below it. `of_first`: `median` over that of the first engine at this batch size.
    """

    engine: str
    batch: int
    ticks: int
    median: float
    p99: float
    maximum: float
    mean: float
    budget: float
    real_time: float
    peak_gib: float | None = None
    weight_bytes: int | None = None
    floor: float | None = None
    of_first: float | None = None

    @property
    def fits(self) -> bool:
        """Whether a tick keeps the time of the audio in it."""
        return self.p99 <= self.budget


def measure(selection: Selection, batch: int, device: torch.device, clock: Clock, tell: Callable[[int], None], seed: int = 0) -> Pace:
    """Build the engine with `batch` slots, time its ticks, and close it.

    `tell` is called with the ticks done, between ticks. Raises Unavailable, or a finding: NothingTimed, what the engine raised, a deadline
    that it missed.
    """
    _collect(device)
    resident = _resident_bytes() if device.type == "cpu" else None
    engine = _build(selection, batch, device, clock, seed)
    try:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        seconds = guard.call("step", _timed, engine, device, clock, tell, deadline=DEADLINE)
        peak = _peak_gib(device, resident)
        weights = getattr(engine, "weight_bytes", None)
        return pace(selection.label, batch, seconds, 1e3 * engine.frame_size / engine.sample_rate, peak, weights)
    finally:
        guard.call("close", engine.close)


def profile_for(selection: Selection, device: torch.device) -> Profile:
    """The engine's profile for the device. Unavailable where it cannot be measured here at any batch size."""
    spec = selection.spec
    profile = next((p for p in spec.profiles.values() if p.device == device.type), None)
    if profile is None:
        raise Unavailable(f"it has no profile for {device.type}")
    why = spec.why_unavailable(profile) or (None if "batch" in spec.options else "it has no option batch")
    if why:
        raise Unavailable(why)
    return profile


def pace(engine: str, batch: int, seconds: Sequence[float], budget: float, peak: float | None, weights: int | None) -> Pace:
    """The figures of one engine from the seconds of its ticks."""
    times = sorted(1e3 * s for s in seconds)
    mean = statistics.fmean(times)
    p99 = times[math.ceil(0.99 * len(times)) - 1]
    return Pace(engine, batch, len(times), statistics.median(times), p99, times[-1], mean, budget, mean / budget, peak, weights)


def _collect(device: torch.device) -> None:
    """Give the next engine the whole memory, whatever cycles, or traceback, the one before was part of."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _build(selection: Selection, batch: int, device: torch.device, clock: Clock, seed: int) -> DuplexEngine:
    profile = profile_for(selection, device)
    config = Selection(selection.spec, {**selection.options, "batch": str(batch)}).config(profile, seed)
    adapter = selection.spec.load()

    def build() -> DuplexEngine | Unavailable:
        # The guard would take the exception for a mistake of the engine.
        try:
            return adapter.build(config, clock)
        except Unavailable as reason:
            return reason

    built = guard.call("build", build, deadline=guard.BUILD_DEADLINE)
    if isinstance(built, Unavailable):
        raise built
    if built.slots != batch:
        guard.call("close", built.close)
        raise NothingTimed(f"it has {built.slots} slots, built with batch={batch}")
    return built


def _timed(engine: DuplexEngine, device: torch.device, clock: Clock, tell: Callable[[int], None]) -> list[float]:
    """Seconds of each timed tick."""
    engine.open()
    silence = torch.zeros(engine.slots, engine.frame_size)
    warmup = WARMUP_TICKS + engine.delay
    seconds = []
    for tick in range(warmup + TIMED_TICKS):
        synchronize(device)
        began = clock.now()
        frames = engine.step(silence)
        synchronize(device)
        took = clock.now() - began
        if tick >= warmup:
            _look_at(frames, engine, tick)
            seconds.append(took)
        tell(tick + 1)
    return seconds


def _look_at(frames: Sequence[Frame], engine: DuplexEngine, tick: int) -> None:
    """Every slot is heard and answers."""
    if len(frames) != engine.slots:
        raise NothingTimed(f"step gave {len(frames)} frames for {engine.slots} slots on tick {tick}")
    for slot, frame in enumerate(frames):
        if frame.phase is not Phase.LIVE or frame.audio is None:
            raise NothingTimed(f"slot {slot} was in phase {frame.phase.value} on tick {tick}, not live")
        if frame.audio.shape != (engine.frame_size,) or not bool(torch.isfinite(frame.audio).all()):
            raise NothingTimed(f"slot {slot} gave no {engine.frame_size} finite samples on tick {tick}")


def _peak_gib(device: torch.device, resident: int | None) -> float | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / GIB
    now = _resident_bytes()
    return None if now is None or resident is None else max(0, now - resident) / GIB


def _resident_bytes() -> int | None:
    """Of this process, as Linux tells it; None elsewhere."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    import resource

    return pages * resource.getpagesize()
