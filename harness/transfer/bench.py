"""What `assay bench transfer` measures: how fast connectors carry bytes, beside a plain copy of them in the same run.

Contestants take turns, round after round, and each is compared with the plain copy of its own round: these machines are noisy, and a ratio
within a round is less so than two times apart. Every payload is checked once, before anything is timed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch

from harness.core.clock import SystemClock
from harness.core.registry import Selection
from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Connector

MIB = 1 << 20
SIZES = tuple(MIB << n for n in range(10))
"""Bytes of a payload: 1 MiB to 512 MiB."""
BUDGET = 4 << 30
"""Bytes that each contestant carries at a size, at least: so small payloads get more rounds."""
ROUNDS = (7, 101)
"""Rounds at a size, at least and at most."""
SMALL, SMALL_ROUNDS = 4096, 2000
"""Bytes of a small message, and how many are timed."""
PLAIN = "plain copy"


@dataclass
class Rate:
    """One contestant at one size. Rates are bytes a second, medians over the rounds; `of_plain` is the median ratio within a round."""

    contestant: str
    size: int
    rounds: int
    put_get: float
    and_read: float
    of_plain: float
    and_read_of_plain: float


@dataclass
class Latency:
    """Put, get and done of small messages, in seconds."""

    contestant: str
    size: int
    rounds: int
    p50: float
    p99: float


@dataclass
class Contestant:
    """Something that carries bytes. `turn` carries the payload once and returns seconds of put and get, and of one read after that."""

    name: str
    turn: Callable[[torch.Tensor, torch.Tensor], tuple[float, float]]


def connectors(selections: Sequence[Selection], missing: dict[str, str], opened: ExitStack) -> Iterator[Contestant]:
    """The connectors that can run here; why the others cannot is noted in `missing`. `opened` closes them."""
    for selection in selections:
        spec, profile = selection.spec, selection.spec.profiles["cpu"]
        why = spec.why_unavailable(profile)
        if why:
            missing[selection.label] = why
            continue
        engine = spec.load().build(selection.config(profile, 0), SystemClock())
        opened.callback(engine.close)
        carrier = engine.connector()
        opened.callback(carrier.close)
        yield Contestant(selection.label, _carried(carrier))


def rates(contestants: Sequence[Contestant], size: int) -> list[Rate]:
    """Every contestant and the plain copy at one size."""
    generator = torch.Generator().manual_seed(size)
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
    sink = torch.empty_like(data)
    everyone = [Contestant(PLAIN, _copied), *contestants]
    for contestant in everyone:
        _warm(contestant, data, sink)
    rounds = min(max(ROUNDS[0], BUDGET // size // 4), ROUNDS[1])
    times = [[contestant.turn(data, sink) for contestant in everyone] for _ in range(rounds)]
    return [_rate(contestant.name, size, [row[i] for row in times], [row[0] for row in times]) for i, contestant in enumerate(everyone)]


def latencies(contestants: Sequence[Contestant]) -> list[Latency]:
    """Small messages, contestants by turns."""
    data = torch.arange(SMALL, dtype=torch.int64).to(torch.uint8)
    sink = torch.empty_like(data)
    for contestant in contestants:
        _warm(contestant, data, sink)
    times = [[contestant.turn(data, sink)[0] for contestant in contestants] for _ in range(SMALL_ROUNDS)]
    made = []
    for i, contestant in enumerate(contestants):
        own = sorted(row[i] for row in times)
        made.append(Latency(contestant.name, SMALL, len(own), own[len(own) // 2], own[len(own) * 99 // 100]))
    return made


def _carried(carrier: Connector) -> Callable[[torch.Tensor, torch.Tensor], tuple[float, float]]:
    handle = carrier.endpoint

    def turn(data: torch.Tensor, sink: torch.Tensor) -> tuple[float, float]:
        began = time.perf_counter()
        ok, _, _ = carrier.put("0", "1", "bench", data)
        found = carrier.get("0", "1", "bench", handle)
        carried = time.perf_counter()
        if not ok or found is None:
            raise RuntimeError(f"{type(carrier).__name__} did not carry {len(data)} bytes")
        _copy(byte_view(found[0])[: len(data)], sink)
        read = time.perf_counter()
        del found
        carrier.done("0", "1", "bench", handle)
        return carried - began, read - carried

    return turn


def _copied(data: torch.Tensor, sink: torch.Tensor) -> tuple[float, float]:
    """The least that could be done: one copy, into memory that is there."""
    view = byte_view(data)
    began = time.perf_counter()
    _copy(view, sink)
    return time.perf_counter() - began, 0.0


def _copy(view: memoryview, sink: torch.Tensor) -> None:
    """On one thread, which does not wait for others where cores are busy, as a copy by torch does."""
    np.copyto(sink.numpy(), np.frombuffer(view, dtype=np.uint8))


def _warm(contestant: Contestant, data: torch.Tensor, sink: torch.Tensor) -> None:
    """Pools fill, pages are faulted in; and what arrives is what was sent."""
    for _ in range(2):
        sink.zero_()
        contestant.turn(data, sink)
        if not torch.equal(sink, data):
            raise RuntimeError(f"{contestant.name} gave other bytes than it was given; nothing of it is timed")


def _rate(name: str, size: int, own: Sequence[tuple[float, float]], plain: Sequence[tuple[float, float]]) -> Rate:
    carried = [put_get for put_get, _ in own]
    read = [sum(pair) for pair in own]
    copied = [put_get for put_get, _ in plain]
    return Rate(
        name,
        size,
        len(own),
        size / statistics.median(carried),
        size / statistics.median(read),
        statistics.median(c / t for c, t in zip(copied, carried, strict=True)),
        statistics.median(c / t for c, t in zip(copied, read, strict=True)),
    )
