"""The plot of `assay bench tier`: hit ratio against working set over capacity, with the host tier and without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core import plots
from harness.tier.bench_run import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(report: Report, path: Path) -> None:
    """Write the plot. RegistryError if nothing was measured."""
    plots.write(figure(report) if report.hits else None, path)


def figure(report: Report) -> Figure:
    """Per engine a line with the host tier and a dashed one without; the device pool's own size as a dotted line."""
    from matplotlib.figure import Figure  # without pyplot, which would look for a screen

    made = Figure(figsize=(7, 4.5), layout="constrained")
    axes = made.add_subplot()
    for number, engine in enumerate(dict.fromkeys(each.engine for each in report.hits)):
        for host in (True, False):
            own = sorted((each for each in report.hits if (each.engine, each.host) == (engine, host)), key=lambda each: each.load)
            if own:
                style = {"linestyle": "-" if host else "--", "marker": "o" if host else "x", "color": f"C{number}"}
                label = f"{engine}, host tier {'on' if host else 'off'}"
                axes.plot([each.load for each in own], [each.ratio for each in own], label=label, **style)
    axes.axvline(1.0, linestyle=":", color="black", label="the device pool")
    axes.set(xlabel="working set / device pool", ylabel="tokens reused in round 2", title=f"tier on {report.device}", ylim=(-0.02, 1.02))
    axes.legend(fontsize="small")
    return made
