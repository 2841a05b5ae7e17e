"""The run of `assay bench tier`: engines one after the other, the tables for people, and the record for machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness import progress
from harness.core import devices
from harness.core.clock import SystemClock
from harness.core.doctor import rates
from harness.core.registry import Registry, Selection
from harness.core.spec import RegistryError
from harness.core.verdict import Finding, Unavailable
from harness.tables import print_table, table
from harness.tier.bench import Hits, Speed, built, hits, profile_for, speed
from harness.tier.bench_copies import Copies
from harness.tier.workload import Workload

ENGINES = ("tier/*",)
"""What is measured unless --engine says otherwise."""
LOADS = (0.5, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Working sets of the sweep, over the capacity of the device pool."""
GIB = 1 << 30


@dataclass
class Report:
    """Everything measured in one run.

    `pinned`: bytes a second of a plain copy from the host's memory to the device, and to the host, pinned on a card. `versions`: engine to
    the version of its package. `missing`: an engine, or a part of its run, to why it was not measured.
    """

    device: str
    pinned: dict[str, float]
    speeds: list[Speed] = field(default_factory=list)
    hits: list[Hits] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=devices.fingerprint)

    def record(self) -> dict[str, Any]:
        """As JSON, with the machine's fingerprint."""
        return {"schema": 1, "bench": "tier", **dataclasses.asdict(self)}


def pinned(device: torch.device) -> dict[str, float]:
    """The rates that write-backs and load-backs are held against."""
    copies = {rate.copy: rate.rate for rate in rates.copies(device)}
    if device.type == "cpu":
        return dict.fromkeys(("load_back", "write_back"), copies["within memory"])
    return {"load_back": copies["pinned memory to card"], "write_back": copies["card to pinned memory"]}


def run(
    registry: Registry, patterns: Sequence[str], device: str, workload: Workload | None = None, loads: Sequence[float] = LOADS
) -> Report:
    """Measure the engines that the patterns pick. RegistryError for what does not exist or cannot be measured."""
    picked = [s for s in registry.select(patterns or ENGINES) if patterns or s.spec.kind == "tier"]
    for selection in picked:
        if selection.spec.kind != "tier":
            raise RegistryError(f"--engine {selection.label}: it is of kind {selection.spec.kind}; assay bench tier measures tier/...")
        if "host" in selection.options:
            raise RegistryError(f"--engine {selection.label}: leave its option host out: both are measured")
    if device == "cuda" and not torch.cuda.is_available():
        raise RegistryError("--device cuda: CUDA finds no card here")
    where = torch.device(device)
    report = Report(device, pinned(where))
    present = [selection for selection in picked if _is_here(report, selection, where)]
    with _bar(len(present) * (1 + 2 * len(loads))) as advance:
        for selection in present:
            report.versions[selection.label] = selection.spec.version or ""
            _measure(report, selection, workload or Workload(), where, loads, advance)
    return report


def _is_here(report: Report, selection: Selection, device: torch.device) -> bool:
    try:
        profile_for(selection, device)
    except Unavailable as reason:
        report.missing[selection.label] = str(reason)
        return False
    return True


def _measure(
    report: Report,
    selection: Selection,
    workload: Workload,
    device: torch.device,
    loads: Sequence[float],
    advance: Callable[[str, int], None],
) -> None:
    """One engine, both arms, or why not; the run goes on."""
    for host in (True, False):
        name = f"{selection.label} {'with' if host else 'without'} the host tier"
        option = {} if "host" not in selection.spec.options else {"host": "on" if host else "off"}
        if not option and not host:
            continue
        try:
            with built(selection, device, SystemClock(), **option) as engine:
                report.hits += hits(selection, engine, host, loads, lambda name=name: advance(name, 1))
                if host or not any(each.engine == selection.label for each in report.speeds):
                    report.speeds.append(speed(selection, engine, workload, device, SystemClock()))
                    advance(name, 1)
        except Unavailable as reason:
            report.missing[name] = str(reason)
        except Finding as broken:
            report.missing[name] = f"{broken.headline}: {broken.got}"


def read(path: Path) -> Report:
    """A report from its record. RegistryError for a file that holds none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["bench"] != "tier":
            raise KeyError("bench")
        speeds = [Speed(**each | {"copies": each["copies"] and Copies(**each["copies"])}) for each in record["speeds"]]
        found = [Hits(**each) for each in record["hits"]]
        kept = {name: record[name] for name in ("device", "pinned", "versions", "missing", "machine")}
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise RegistryError(f"--read {path}: no record of assay bench tier --json ({type(wrong).__name__}: {wrong})") from None
    return Report(speeds=speeds, hits=found, **kept)


@contextmanager
def _bar(parts: int) -> Iterator[Callable[[str, int], None]]:
    """`advance(name, parts)` moves the bar. It is drawn between parts, by no thread."""
    with progress.bar(parts, "parts") as move:
        done = 0

        def advance(name: str, more: int) -> None:
            nonlocal done
            done += more
            move(name, done)

        yield advance


def show(report: Report) -> None:
    """The tables."""
    if report.speeds:
        columns = ("engine", "prompt", "cold ms", "device-warm", "host-warm", "cold / host-warm", "prefill tok/s", "decode tok/s")
        shown = table(f"First token on {report.device}, medians", *columns)
        for each in report.speeds:
            times = (f"{each.cold:.1f}", f"{each.device_warm:.1f}", _number(each.host_warm, 1))
            sooner = "-" if each.host_warm is None else f"{each.cold / each.host_warm:.1f}"
            shown.add_row(each.engine, str(each.prompt_tokens), *times, sooner, f"{each.prefill_rate:.0f}", f"{each.decode_rate:.0f}")
        print_table(shown)
        _show_copies(report)
    if report.hits:
        loads = sorted({round(each.load, 2) for each in report.hits})
        shown = table(
            "Reused in the second round, by working set over the device pool", "engine", "host tier", *(f"{load:g}" for load in loads)
        )
        for engine, host in dict.fromkeys((each.engine, each.host) for each in report.hits):
            by_load = {round(each.load, 2): each.ratio for each in report.hits if (each.engine, each.host) == (engine, host)}
            shown.add_row(engine, "on" if host else "off", *(_number(by_load.get(load), 3) for load in loads))
        print_table(shown)
    for name, why in report.missing.items():
        print(f"UNAVAILABLE  {name}: {why}")


def _show_copies(report: Report) -> None:
    shown = table(
        "Between the tiers, GB/s", "engine", "MiB", "write-back", "of a plain copy", "load-back", "of a plain copy", "load-back seen"
    )
    for each in report.speeds:
        if each.copies is None and each.seen is None:
            continue
        cells = ["-"] * 5
        if each.copies is not None:
            write, load = each.copies.write_back, each.copies.load_back
            shares = write / report.pinned["write_back"], load / report.pinned["load_back"]
            cells = [
                f"{each.copies.size / (1 << 20):.0f}",
                f"{write / 1e9:.1f}",
                f"{shares[0]:.0%}",
                f"{load / 1e9:.1f}",
                f"{shares[1]:.0%}",
            ]
        shown.add_row(each.engine, *cells, "-" if each.seen is None else f"{each.seen / 1e9:.1f}")
    if shown.row_count:
        print_table(shown)
    plain = ", ".join(f"{name.replace('_', '-')} {rate / 1e9:.1f} GB/s" for name, rate in report.pinned.items())
    print(f"a plain copy of {report.device}: {plain}")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
