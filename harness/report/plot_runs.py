"""Pictures of recorded runs: when and where slots diverged, and hit ratios by round."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from harness.report.plot_style import COLOURS, shown
from harness.report.runs import Figure as Recorded
from harness.report.runs import RecordedRun, Result
from harness.report.sketch import Sketch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 8
"""Divergences that are drawn; a run in which everything fails would be all pictures."""
COLUMNS = 64
"""Ticks side by side; more are taken together, the largest difference of each group."""
_SLOT = re.compile(r"divergent ticks of slot (\d+)")
_ROUND = re.compile(r"round (\d) reused, host tier (\w+)")


def sketches(runs: Sequence[RecordedRun]) -> list[Sketch]:
    """Of every run's results, in their order."""
    results = [result for run in runs for result in run.results]
    apart = [sketch for result in results if (sketch := divergence(result)) is not None]
    return [*apart[:MOST], *rounds(results)]


def divergence(result: Result) -> Sketch | None:
    """Tick by slot, the log of the difference; None where no slot diverged."""
    slots = {int(found[1]): f for f in result.figures if (found := _SLOT.fullmatch(f.name)) and f.series is not None}
    points = {slot: figure.series.points for slot, figure in sorted(slots.items()) if figure.series is not None}
    if not any(points.values()):
        return None
    first, where = min((pairs[0][0], slot) for slot, pairs in points.items() if pairs)
    planted = f", fault {result.fault}" if result.fault else ""
    return Sketch(
        title=f"Where slots diverged: {result.claim} on {result.column}{planted}",
        caption="Blank: the same bits. A cross: what differs is no finite sample. Slots that the claim does not compare are left out.",
        alt=f"{sum(map(bool, points.values()))} of {len(points)} slots differ, slot {where} first, at tick {first:g}.",
        columns=("slot", "divergent ticks", "first at tick", "largest difference, log2 of full scale"),
        rows=tuple(_row(slot, pairs) for slot, pairs in points.items()),
        draw=partial(_divergence, points),
    )


def rounds(results: Sequence[Result]) -> list[Sketch]:
    """Hit ratio by round, with the host tier and without: a picture for each engine's first result that has it."""
    made: dict[str, Sketch] = {}
    for result in results:
        figures = {figure.name: figure for figure in result.figures}
        found = {(m[2], int(m[1])): f for name, f in figures.items() if (m := _ROUND.fullmatch(name))}
        if found and not result.fault and result.column not in made:
            made[result.column] = _rounds_of(result, found, figures)
    return list(made.values())


def _rounds_of(result: Result, found: Mapping[tuple[str, int], Recorded], figures: Mapping[str, Recorded]) -> Sketch:
    bars = []
    for (host, number), figure in sorted(found.items(), reverse=True):
        from_host = figures.get(f"round {number} from the host, host tier {host}")
        bars.append((host, number, figure.value, from_host.value if from_host else None))
    bars.sort(key=lambda bar: (bar[0] != "on", bar[1]))
    return Sketch(
        title=f"Reused by round on {result.column}",
        caption="Two rounds over prompts that oversubscribe the device pool, with the host tier and without.",
        alt=" ".join(f"Round {number}, host tier {host}: {value:.1%}." for host, number, value, _ in bars),
        columns=("host tier", "round", "reused, of 1", "of these from the host"),
        rows=tuple((host, str(n), f"{value:.3f}", "-" if part is None else f"{part:.3f}") for host, n, value, part in bars),
        draw=partial(_bars, bars),
    )


def _row(slot: int, pairs: Sequence[tuple[float, float | None]]) -> tuple[str, ...]:
    sizes = [size for _, size in pairs if size is not None]
    return str(slot), str(len(pairs)), f"{pairs[0][0]:g}" if pairs else "-", f"{max(sizes):.1f}" if sizes else "-"


def _divergence(points: Mapping[int, Sequence[tuple[float, float | None]]]) -> Figure:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure

    last = max(tick for pairs in points.values() for tick, _ in pairs)
    width = ceil((last + 1) / COLUMNS)
    sizes = [size for pairs in points.values() for _, size in pairs if size is not None] or [0.0]
    # From blue to orange through grey: told apart by people who see few colours, and seen on any paper.
    colours = LinearSegmentedColormap.from_list("difference", [COLOURS[0], COLOURS[7], COLOURS[1]], N=16)
    scale = Normalize(min(sizes) - 0.5, max(sizes) + 0.5)
    made = Figure(figsize=(7, 1.6 + 0.3 * len(points)), layout="constrained")
    axes = made.add_subplot()
    for place, pairs in enumerate(points.values()):
        cells: dict[int, list[float]] = {}
        for tick, size in pairs:
            cells.setdefault(int(tick) // width * width, []).extend([] if size is None else [size])
        for tick, own in cells.items():
            if own:
                axes.barh(place, width, left=tick - 0.5, height=0.8, color=colours(scale(max(own))), linewidth=0)
            else:
                axes.plot(tick + (width - 1) / 2, place, marker="x", markersize=4, color=COLOURS[4], linestyle="")
    axes.set(
        xlabel="tick" if width == 1 else f"tick, {width} to a cell", ylabel="slot", xlim=(-0.5, last + 0.5), ylim=(len(points) - 0.5, -0.5)
    )
    axes.set_yticks(range(len(points)), [f"{slot}" for slot in points])
    bar = made.colorbar(ScalarMappable(scale, colours), ax=axes, pad=0.02)
    bar.set_label("largest difference,\nlog2 of full scale")
    bar.outline.set_linewidth(0)
    bar.solids.set_rasterized(False)  # an image in the picture would be a file of its own to the page
    return made


def _bars(bars: Sequence[tuple[str, int, float, float | None]]) -> Figure:
    from matplotlib.figure import Figure

    made = Figure(figsize=(7, 3.2), layout="constrained")
    axes = made.add_subplot()
    parts = [part or 0.0 for *_, part in bars]
    rest = [max(value - part, 0.0) for (_, _, value, _), part in zip(bars, parts, strict=True)]
    split = any(part is not None for *_, part in bars)
    axes.bar(range(len(bars)), rest, width=0.55, color="C0", label="on the device" if split else "reused")
    if split:
        axes.bar(range(len(bars)), parts, width=0.55, bottom=rest, color="C1", hatch="//", linewidth=0, label="from the host")
    for place, (_, _, value, _) in enumerate(bars):
        axes.annotate(f"{value:.1%}", (place, value), xytext=(0, 3), textcoords="offset points", ha="center")
    axes.set_xticks(range(len(bars)), [f"round {number}\nhost tier {shown(host, 8)}" for host, number, *_ in bars])
    axes.grid(visible=False, axis="x")
    axes.set(ylabel="prompt tokens reused, of 1", ylim=(0, 1.08))
    made.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=2, fontsize="small")
    return made
