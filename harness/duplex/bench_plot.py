"""The plot of `assay bench duplex`: milliseconds of a tick against batch size, with the budget and the floor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core import plots
from harness.duplex.bench_run import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(report: Report, path: Path) -> None:
    """Write the plot. RegistryError if nothing was measured."""
    plots.write(figure(report) if report.paces else None, path)


def figure(report: Report) -> Figure:
    """Per engine the median as a line, up to the p99 as a band, and its floor dotted; the budget as a dashed line."""
    from matplotlib.figure import Figure  # without pyplot, which would look for a screen

    made = Figure(figsize=(7, 4.5), layout="constrained")
    axes = made.add_subplot()
    for number, engine in enumerate(report.engines()):
        own = sorted((p for p in report.paces if p.engine == engine), key=lambda p: p.batch)
        batches, medians, colour = [p.batch for p in own], [p.median for p in own], f"C{number}"
        axes.plot(batches, medians, marker="o", color=colour, label=engine)
        axes.fill_between(batches, medians, [p.p99 for p in own], color=colour, alpha=0.25, linewidth=0)
        floors = [(p.batch, p.floor) for p in own if p.floor is not None]
        if floors:
            axes.plot(*zip(*floors, strict=True), linestyle=":", color=colour, label=f"{engine}: floor")
    budget, batches = report.paces[0].budget, sorted({p.batch for p in report.paces})
    axes.axhline(budget, linestyle="--", color="black", label=f"budget {budget:g} ms")
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set(xlabel="slots", ylabel="ms a tick (line: median, band: to the p99)", title=f"duplex on {report.device}", ylim=(0, None))
    axes.legend(fontsize="small")
    return made
