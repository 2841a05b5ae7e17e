"""Prefetches into several cards at once beside plain copies to each, and from card to card beside a plain peer copy, in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from harness.core.capabilities import Support
from harness.core.clock import SystemClock
from harness.core.registry import Selection
from harness.transfer.bench_prefetch import TIMEOUT, Pair, PlainCopy

HOST = torch.device("cpu")


@dataclass
class AtOnce:
    """What one engine carried. Rates are bytes a second, medians over the rounds.

    `rate`: of all its copies together, from the first start to the last end. `plain`: of a plain copy to each device alone, added up.
    `of_plain`: the median of their ratio within a round.
    """

    engine: str
    way: str
    size: int
    rounds: int
    rate: float
    plain: float
    of_plain: float


def at_once(selection: Selection, size: int, devices: Sequence[torch.device], rounds: int = 9) -> AtOnce:
    """Prefetch a payload of about `size` bytes from the host into each of `devices`, all at once."""
    return _measured(selection, f"host to {len(devices)} devices", size, [(HOST, device) for device in devices], rounds)


def card_to_card(selection: Selection, size: int, source: torch.device, target: torch.device, rounds: int = 9) -> AtOnce:
    """Prefetch a payload that lies on `source` to `target`. Whether it goes by way of the host is the connector's doing."""
    return _measured(selection, f"{source} to {target}", size, [(source, target)], rounds)


def _measured(selection: Selection, way: str, size: int, ways: Sequence[tuple[torch.device, torch.device]], rounds: int) -> AtOnce:
    profile = next(p for p in selection.spec.profiles.values() if p.device == ways[0][1].type)
    keeps = selection.spec.capabilities["readers"].support is Support.FULL
    with ExitStack() as opened:
        pairs = []
        for source, target in ways:
            engine = selection.spec.load().build(selection.config(profile, 0), SystemClock())
            opened.callback(engine.close)
            pairs.append(Pair(engine, size, target, keeps, opened, source))
        size = pairs[0].size
        copies = [PlainCopy(size, *ends) for ends in ways]
        for _ in range(2):
            _together(pairs)
        rows = [(len(pairs) * size / _together(pairs), sum(size / copy.seconds() for copy in copies)) for _ in range(rounds)]
    rates, plain = zip(*rows, strict=True)
    share = statistics.median(rate / least for rate, least in rows)
    return AtOnce(selection.label, way, size, rounds, statistics.median(rates), statistics.median(plain), share)


def _together(pairs: Sequence[Pair]) -> float:
    """Seconds from the first start to the end of the last copy; of an engine that does not tell when that is, to the last delivery."""
    started = [pair.start() for pair in pairs]
    began = started[0][1]
    while any(pair.tells() and pair.copies() for pair in pairs) and time.perf_counter() - began < TIMEOUT:
        time.sleep(20e-6)  # not in the workers' way
    ended = time.perf_counter()
    for pair, (request, _) in zip(pairs, started, strict=True):
        pair.end(request)
    return (ended if all(pair.tells() for pair in pairs) else time.perf_counter()) - began
