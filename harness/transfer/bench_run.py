"""The run of `assay bench transfer`: its parts in order, the tables for people, and the record for machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from harness import progress
from harness.core import devices
from harness.core.registry import Registry, Selection
from harness.tables import print_table, table
from harness.transfer.bench import MIB, PLAIN, Latency, Rate, connectors, latencies, rates
from harness.transfer.bench_cards import AtOnce, at_once, card_to_card
from harness.transfer.bench_prefetch import Hidden, hidden

CONNECTORS = ("connector/*", "connector/shm:checksum=off", "connector/tcp:checksum=off")
ENGINES = ("transfer/reference:connector=shm", "transfer/reference:checksum=off,connector=shm", "transfer/vllm-omni")
"""What is measured unless --engine says otherwise."""
HIDDEN_SIZE = 256 * MIB


@dataclass
class Report:
    """Everything measured in one run. `missing`: what could not run here, and why."""

    rates: list[Rate] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    hidden: list[Hidden] = field(default_factory=list)
    cards: list[AtOnce] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As JSON, with the machine's fingerprint."""
        return {"schema": 1, "bench": "transfer", "machine": devices.fingerprint(), **dataclasses.asdict(self)}


def run(registry: Registry, patterns: Sequence[str], sizes: Sequence[int], device: str) -> Report:
    """Measure the engines that the patterns pick. RegistryError for one that does not exist."""
    picked = registry.select(patterns or (*CONNECTORS, *ENGINES))
    report = Report()
    transfers = [s for s in picked if s.spec.kind == "transfer"]
    with progress.bar(len(sizes) + 1 + len(transfers), "parts") as move:
        with ExitStack() as opened:
            contestants = list(connectors([s for s in picked if s.spec.kind == "connector"], report.missing, opened))
            for done, size in enumerate(sizes if contestants else ()):
                move(f"{size // MIB} MiB", done)
                report.rates += rates(contestants, size)
            if contestants:
                move("small messages", len(sizes))
                report.latencies += latencies(contestants)
        for done, selection in enumerate(transfers, len(sizes) + 1):
            move(f"{selection.label} to {device}", done)
            _measure_hidden(report, selection, torch.device(device))
    return report


def _measure_hidden(report: Report, selection: Selection, device: torch.device) -> None:
    profile = next((p for p in selection.spec.profiles.values() if p.device == device.type), None)
    why = f"it has no profile for {device}" if profile is None else selection.spec.why_unavailable(profile)
    if why:
        report.missing[selection.label] = why
        return
    report.hidden.append(hidden(selection, HIDDEN_SIZE, device))
    cards = [torch.device("cuda", i) for i in range(torch.cuda.device_count())] if device.type == "cuda" else []
    if len(cards) > 1:
        print(f"{selection.label} on {len(cards)} cards ...", flush=True)
        report.cards += [at_once(selection, HIDDEN_SIZE, cards), card_to_card(selection, HIDDEN_SIZE, cards[0], cards[1])]


def show(report: Report) -> None:
    """The tables."""
    if report.rates:
        shown = table(
            "put + get, and with one read of the payload", "MiB", "who", "rounds", "GiB/s", "of plain copy", "and read", "of plain copy"
        )
        for rate in report.rates:
            cells = (_gib(rate.put_get), _share(rate.of_plain), _gib(rate.and_read), _share(rate.and_read_of_plain))
            plain = rate.contestant == PLAIN
            shown.add_row(str(rate.size // MIB), rate.contestant, str(rate.rounds), cells[0], *(("-",) * 3 if plain else cells[1:]))
        print_table(shown)
    if report.latencies:
        shown = table("\nput + get of small messages", "bytes", "who", "rounds", "p50 us", "p99 us")
        for latency in report.latencies:
            times = (f"{1e6 * latency.p50:.1f}", f"{1e6 * latency.p99:.1f}")
            shown.add_row(str(latency.size), latency.contestant, str(latency.rounds), *times)
        print_table(shown)
    if report.hidden:
        shown = table("\nWhat a prefetch hides", "engine", "to", "MiB", "fetch ms", "waited ms", "hidden", "prefetch ms", "of pinned copy")
        for row in report.hidden:
            times = (f"{1e3 * row.fetch:.2f}", f"{1e3 * row.waited:.2f}", _share(row.share))
            prefetch = "-" if row.prefetch is None else f"{1e3 * row.prefetch:.2f}"
            of_pinned = "-" if row.of_pinned is None else _share(row.of_pinned)
            shown.add_row(row.engine, row.device, str(row.size // MIB), *times, prefetch, of_pinned)
        print_table(shown)
    if report.cards:
        shown = table(
            "\nSeveral cards at once, and from card to card", "engine", "way", "MiB a copy", "GiB/s", "plain copies GiB/s", "of those"
        )
        for cards in report.cards:
            shown.add_row(cards.engine, cards.way, str(cards.size // MIB), _gib(cards.rate), _gib(cards.plain), _share(cards.of_plain))
        print_table(shown)
    for name, why in report.missing.items():
        print(f"UNAVAILABLE  {name}: {why}")


def _gib(rate: float) -> str:
    return f"{rate / (1 << 30):.2f}"


def _share(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"
