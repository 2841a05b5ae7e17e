"""The plot of `assay bench duplex`: milliseconds of a tick against batch size, with the budget and the floor."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from harness.core.spec import RegistryError
from harness.duplex.bench_run import Report

FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """RegistryError if the plot could not be drawn: said before anything is measured."""
    if find_spec("matplotlib") is None:
        raise RegistryError("--plot needs matplotlib, which is not installed: pip install -e '.[plot]'")
    if path.suffix not in FORMATS:
        raise RegistryError(f"--plot {path}: write a name that ends in {', '.join(FORMATS)}")


def draw(report: Report, path: Path) -> None:
    """Write the plot: per engine the median as a line, up to the p99 as a band, and its floor dotted. Nothing measured: an error."""
    from matplotlib.figure import Figure  # without pyplot, which would look for a screen

    if not report.paces:
        raise RegistryError(f"--plot {path}: nothing was measured, so there is nothing to draw")
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, engine in enumerate(report.engines()):
        own = sorted((p for p in report.paces if p.engine == engine), key=lambda p: p.batch)
        batches, colour = [p.batch for p in own], f"C{number}"
        axes.plot(batches, [p.median for p in own], marker="o", color=colour, label=engine)
        axes.fill_between(batches, [p.median for p in own], [p.p99 for p in own], color=colour, alpha=0.25, linewidth=0)
        floors = [(p.batch, p.floor) for p in own if p.floor is not None]
        if floors:
            axes.plot(*zip(*floors, strict=True), linestyle=":", color=colour, label=f"{engine}: floor")
    axes.axhline(report.paces[0].budget, linestyle="--", color="black", label=f"budget {report.paces[0].budget:g} ms")
    batches = sorted({p.batch for p in report.paces})
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set(xlabel="slots", ylabel="ms a tick (line: median, band: to the p99)", title=f"duplex on {report.device}", ylim=(0, None))
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
