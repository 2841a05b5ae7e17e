"""The plot of `assay bench tier`: hit ratio against working set over capacity, with the host tier and without. Drawn from the record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.tier.bench_run import Report


def draw(report: Report, path: Path) -> None:
    """Write the plot. RegistryError if nothing was measured."""
    plots.write(figure(report.record()) if report.hits else None, path)


def figure(record: Mapping[str, Any]) -> Figure:
    """Per engine a line with the host tier, a band below it for what came from the host, a dashed line without; the pool dotted."""
    from matplotlib.figure import Figure  # without pyplot, which would look for a screen

    made = Figure(figsize=(7, 4.5), layout="constrained")
    axes, hits = made.add_subplot(), record["hits"]
    for number, engine in enumerate(dict.fromkeys(each["engine"] for each in hits)):
        for host in (True, False):
            own = sorted((each for each in hits if (each["engine"], each["host"]) == (engine, host)), key=lambda each: each["load"])
            if not own:
                continue
            loads, ratios = [each["load"] for each in own], [each["ratio"] for each in own]
            style = {"linestyle": "-" if host else "--", "marker": plots.marker(number) if host else "x", "color": f"C{number}"}
            axes.plot(loads, ratios, label=f"{engine}, host tier {'on' if host else 'off'}", **style)
            below = [each["ratio"] - (each.get("from_host") or 0.0) for each in own]
            if below != ratios:
                band = {"color": f"C{number}", "alpha": 0.2, "linewidth": 0, "label": f"{engine}: of these from the host"}
                axes.fill_between(loads, below, ratios, **band)
    axes.axvline(1.0, linestyle=":", color=plots.ink(), label="the device pool")
    axes.set(xlabel="working set / device pool", ylabel="tokens reused in round 2, of 1", title=f"tier on {record['device']}")
    axes.set_ylim(-0.02, 1.02)
    axes.legend(fontsize="small")
    return made
