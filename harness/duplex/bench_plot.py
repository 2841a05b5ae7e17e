"""The plot of `assay bench duplex`: milliseconds of a tick against batch size, with the budget and the floor. Drawn from the record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.duplex.bench_run import Report


def draw(report: Report, path: Path) -> None:
    """Write the plot. RegistryError if nothing was measured."""
    plots.write(figure(report.record()) if report.paces else None, path)


def figure(record: Mapping[str, Any]) -> Figure:
    """Per engine the median as a line, up to the p99 as a band, and its floor dotted; the budget as a dashed line."""
    from matplotlib.figure import Figure  # without pyplot, which would look for a screen

    made = Figure(figsize=(7, 4.5), layout="constrained")
    axes, paces = made.add_subplot(), record["paces"]
    for number, engine in enumerate(dict.fromkeys(pace["engine"] for pace in paces)):
        own = sorted((pace for pace in paces if pace["engine"] == engine), key=lambda pace: pace["batch"])
        batches, medians, colour = [pace["batch"] for pace in own], [pace["median"] for pace in own], f"C{number}"
        axes.plot(batches, medians, marker=plots.marker(number), color=colour, label=engine)
        axes.fill_between(batches, medians, [pace["p99"] for pace in own], color=colour, alpha=0.25, linewidth=0)
        floors = [(pace["batch"], pace["floor"]) for pace in own if pace["floor"] is not None]
        if floors:
            axes.plot(*zip(*floors, strict=True), linestyle=":", color=colour, label=f"{engine}: floor")
    budget, batches = paces[0]["budget"], sorted({pace["batch"] for pace in paces})
    axes.axhline(budget, linestyle="--", color=plots.ink(), label=f"budget {budget:g} ms")
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set(xlabel="slots", ylabel="ms a tick (line: median, band: to the p99)", title=f"duplex on {record['device']}", ylim=(0, None))
    axes.legend(fontsize="small")
    return made
