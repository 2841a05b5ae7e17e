"""The run of `assay bench duplex`: engines one after the other, the table for people, and the record for machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.text import Text

from harness import progress
from harness.core import devices
from harness.core.clock import SystemClock
from harness.core.doctor import rates
from harness.core.registry import Registry, Selection
from harness.core.spec import RegistryError
from harness.core.verdict import Finding, Unavailable
from harness.duplex.bench import GIB, LEAST_BATCH, TIMED_TICKS, WARMUP_TICKS, Pace, measure, profile_for
from harness.tables import print_table, table

ENGINES = ("duplex/*",)
"""What is measured unless --engine says otherwise."""


@dataclass
class Report:
    """Everything measured in one run.

    `bandwidth`: bytes a second that the device's memory reads and writes. `versions`: engine to the version of its package. `missing`: an
    engine, with its batch size where one alone failed, to why it was not measured.
    """

    device: str
    bandwidth: float
    paces: list[Pace] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=devices.fingerprint)

    def record(self) -> dict[str, Any]:
        """As JSON, with the machine's fingerprint; `streams` is what the paces come to, engine by engine."""
        streams = {engine: fitting(self.paces, engine) for engine in self.engines()}
        return {"schema": 1, "bench": "duplex", **dataclasses.asdict(self), "streams": streams}

    def engines(self) -> list[str]:
        """Those measured, in the order of the run."""
        return list(dict.fromkeys(pace.engine for pace in self.paces))


def run(registry: Registry, patterns: Sequence[str], batches: Sequence[int], device: str) -> Report:
    """Measure the engines that the patterns pick at each batch size. RegistryError for what does not exist or cannot be measured."""
    picked = [s for s in registry.select(patterns or ENGINES) if patterns or s.spec.kind == "duplex"]
    for selection in picked:
        if selection.spec.kind != "duplex":
            raise RegistryError(f"--engine {selection.label}: it is of kind {selection.spec.kind}; assay bench duplex measures duplex/...")
        if "batch" in selection.options:
            raise RegistryError(f"--engine {selection.label}: leave its option batch out, and give --batch {selection.options['batch']}")
    if min(batches) < 1:
        raise RegistryError(f"--batch {min(batches)}: give 1 or more; less than {LEAST_BATCH} are measured as {LEAST_BATCH}")
    if device == "cuda" and not torch.cuda.is_available():
        raise RegistryError("--device cuda: CUDA finds no card here")
    where = torch.device(device)
    report = Report(device, rates.bandwidth(where))
    sizes = sorted({max(batch, LEAST_BATCH) for batch in batches})
    with _bar(len(picked) * len(sizes)) as advance:
        for selection in picked:
            try:
                profile_for(selection, where)
            except Unavailable as reason:
                report.missing[selection.label] = str(reason)
                continue
            for batch in sizes:
                _measure(report, selection, batch, where, advance)
    return report


def _measure(report: Report, selection: Selection, batch: int, device: torch.device, advance: Callable[[str, int], None]) -> None:
    """One engine at one batch size, or why not; the run goes on."""
    name = f"{selection.label} batch {batch}"
    try:
        pace = measure(selection, batch, device, SystemClock(), lambda ticks: advance(name, ticks))
    except Unavailable as reason:
        report.missing[name] = str(reason)
    except Finding as broken:
        report.missing[name] = f"{broken.headline}: {broken.got}"
    else:
        report.versions[selection.label] = selection.spec.version or ""
        report.paces.append(beside(pace, report))
    advance(name, -1)


def beside(pace: Pace, report: Report) -> Pace:
    """The pace with its floor, and its ratio to the first engine at the same batch size."""
    first = report.paces[0].engine if report.paces else pace.engine
    twin = next((p for p in [*report.paces, pace] if (p.engine, p.batch) == (first, pace.batch)), None)
    return dataclasses.replace(
        pace,
        floor=None if pace.weight_bytes is None else 1e3 * pace.weight_bytes / report.bandwidth,
        of_first=None if twin is None else pace.median / twin.median,
    )


def fitting(paces: Sequence[Pace], engine: str) -> int:
    """The most streams that were seen to fit in the budget: there may be room for more, up to the next size measured. 0: none were."""
    return max((pace.batch for pace in paces if pace.engine == engine and pace.fits), default=0)


def read(path: Path) -> Report:
    """A report from its record. RegistryError for a file that holds none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["bench"] != "duplex":
            raise KeyError("bench")
        paces = [Pace(**pace) for pace in record["paces"]]
        kept = {name: record[name] for name in ("device", "bandwidth", "versions", "missing", "machine")}
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise RegistryError(f"--read {path}: no record of assay bench duplex --json ({type(wrong).__name__}: {wrong})") from None
    return Report(paces=paces, **kept)


@contextmanager
def _bar(runs: int) -> Iterator[Callable[[str, int], None]]:
    """`advance(name, ticks)` moves the bar within a run, and ends the run for ticks = -1. It is drawn between ticks, by no thread."""
    with progress.bar(runs, "runs") as move:
        done = 0

        def advance(name: str, ticks: int) -> None:
            nonlocal done
            done += ticks == -1
            share = 0.0 if ticks == -1 else min(ticks / (WARMUP_TICKS + TIMED_TICKS), 0.99)
            if ticks == -1 or ticks % 10 == 1:
                move(name, done + share)

        yield advance


def show(report: Report) -> None:
    """The tables."""
    if report.paces:
        columns = (
            "engine",
            "B",
            "median ms",
            "p99",
            "max",
            "x real time",
            "of first",
            "floor ms",
            "peak GiB" if report.device == "cuda" else "grown GiB",
        )
        shown = table(f"A tick on {report.device}, {report.paces[0].ticks} timed", *columns)
        for pace in report.paces:
            times = (f"{pace.median:.2f}", Text(f"{pace.p99:.2f}", style="" if pace.fits else "bold red"), f"{pace.maximum:.2f}")
            ratios = (f"{pace.real_time:.3f}", _number(pace.of_first, 2), _number(pace.floor, 2), _number(pace.peak_gib, 2))
            shown.add_row(pace.engine, str(pace.batch), *times, *ratios)
        print_table(shown)
    for engine in report.engines():
        print(f"{engine}: {_streams(report, engine)}")
    print(f"memory bandwidth of {report.device}: {report.bandwidth / GIB:.1f} GiB/s, read and written")
    for name, why in report.missing.items():
        print(f"UNAVAILABLE  {name}: {why}")


def _streams(report: Report, engine: str) -> str:
    own = [pace for pace in report.paces if pace.engine == engine]
    most, budget = fitting(report.paces, engine), f"{own[0].budget:g} ms"
    if not most:
        return f"no batch size measured keeps {budget} (p99)"
    beyond = [pace.batch for pace in own if pace.batch > most]
    return f"at least {most} streams fit in {budget} (p99)" + (f"; {min(beyond)} do not" if beyond else ", the most that were measured")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
