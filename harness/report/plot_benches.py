"""Pictures of bench records: ticks against batch, hit ratios against load, throughput against size, what a prefetch hid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.core import plots
from harness.duplex import bench_plot as duplex_plot
from harness.report.plot_style import shown
from harness.report.sketch import Sketch
from harness.tier import bench_plot as tier_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIB, GIB = 1 << 20, 1 << 30


def sketches(record: Mapping[str, Any]) -> list[Sketch]:
    """What a record of `assay bench`, as `read_benches` checked it, has figures for."""
    makers = {"duplex": (pace,), "tier": (hits,), "transfer": (throughput, prefetch)}[record["bench"]]
    return [sketch for make in makers if (sketch := make(record)) is not None]


def pace(record: Mapping[str, Any]) -> Sketch | None:
    """Milliseconds of a tick by slots, with the budget and the floor."""
    paces = record["paces"]
    if not paces:
        return None
    budget = paces[0]["budget"]
    kept = [pace for pace in paces if pace["p99"] <= budget]
    return Sketch(
        title=f"A tick by batch size, on {record['device']}",
        caption=f"Line: median; band: up to the p99; dotted: the floor, which is to read the weights once. Budget {budget:g} ms.",
        alt=f"{len(kept)} of {len(paces)} points keep the budget of {budget:g} ms at the p99.",
        columns=("engine", "slots", "median ms", "p99 ms", "floor ms", "budget ms"),
        rows=tuple(
            (p["engine"], f"{p['batch']:g}", f"{p['median']:.2f}", f"{p['p99']:.2f}", _number(p["floor"]), f"{p['budget']:g}")
            for p in paces
        ),
        draw=partial(duplex_plot.figure, _named(record, "paces", "engine")),
    )


def hits(record: Mapping[str, Any]) -> Sketch | None:
    """Hit ratio of a second round by oversubscription, with the host tier and without."""
    found = record["hits"]
    if not found:
        return None
    beyond = [each["ratio"] for each in found if each["load"] > 1 and each["host"]]
    told = f" Beyond the device pool, with the host tier, between {min(beyond):.0%} and {max(beyond):.0%} are reused." if beyond else ""
    return Sketch(
        title=f"Reused in the second round by oversubscription, on {record['device']}",
        caption="Working set over the device pool: beyond 1, what the device evicted comes from the host, or is computed again.",
        alt=f"{len(found)} points.{told}",
        columns=("engine", "host tier", "working set / pool", "prompts", "reused, of 1", "of these from the host"),
        rows=tuple(
            (
                each["engine"],
                "on" if each["host"] else "off",
                f"{each['load']:.2f}",
                f"{each['prompts']:g}",
                f"{each['ratio']:.3f}",
                _number(each.get("from_host"), 3),
            )
            for each in found
        ),
        draw=partial(tier_plot.figure, _named(record, "hits", "engine")),
    )


def throughput(record: Mapping[str, Any]) -> Sketch | None:
    """Put + get, in GiB a second, by message size."""
    rates = record["rates"]
    if not rates:
        return None
    best = max(rates, key=lambda rate: rate["put_get"])
    return Sketch(
        title="Throughput by message size",
        caption="put and get of one payload, beside a plain copy of the same bytes in the same run.",
        alt=f"The most is {best['put_get'] / GIB:.2f} GiB/s, {best['contestant']} at {best['size'] / MIB:g} MiB.",
        columns=("who", "MiB", "GiB/s", "of a plain copy"),
        rows=tuple(
            (rate["contestant"], f"{rate['size'] / MIB:g}", f"{rate['put_get'] / GIB:.2f}", f"{rate['of_plain']:.1%}") for rate in rates
        ),
        draw=partial(_throughput, rates),
    )


def prefetch(record: Mapping[str, Any]) -> Sketch | None:
    """What a request waits for without a prefetch, and behind compute with one."""
    found = record["hidden"]
    if not found:
        return None
    return Sketch(
        title="What a prefetch hides",
        caption="Upper bar: a fetch that begins when its request needs it. Lower bar: one that begins before; only its end is waited for.",
        alt=" ".join(f"{row['engine']} to {row['device']}: {row['share']:.1%} of the fetch hidden." for row in found),
        columns=("engine", "to", "MiB", "fetch ms", "compute ms", "waited ms", "hidden"),
        rows=tuple(
            (
                row["engine"],
                row["device"],
                f"{row['size'] / MIB:g}",
                f"{1e3 * row['fetch']:.2f}",
                _number(_ms(row.get("compute"))),
                f"{1e3 * row['waited']:.2f}",
                f"{row['share']:.1%}",
            )
            for row in found
        ),
        draw=partial(_timeline, found),
    )


def _throughput(rates: Sequence[Mapping[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    made = Figure(figsize=(7, 4.5), layout="constrained")
    axes = made.add_subplot()
    for number, who in enumerate(dict.fromkeys(rate["contestant"] for rate in rates)):
        own = sorted((rate for rate in rates if rate["contestant"] == who), key=lambda rate: rate["size"])
        style = {"marker": plots.marker(number), "color": f"C{number}", "linestyle": "-" if number < 8 else "--"}
        axes.plot([rate["size"] / MIB for rate in own], [rate["put_get"] / GIB for rate in own], label=shown(who), **style)
    sizes = sorted({rate["size"] / MIB for rate in rates})
    axes.set(xscale="log", yscale="log", xlabel="payload, MiB", ylabel="put + get, GiB/s")
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    _plain(axes.yaxis)
    made.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    return made


def _timeline(found: Sequence[Mapping[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    made = Figure(figsize=(7, 1.2 + 1.3 * len(found)), layout="constrained")
    axes, told = made.add_subplot(), set()

    def bar(row: float, begin: float, width: float, what: str, colour: str, hatch: str = "") -> None:
        if not width:
            return
        style = {"color": colour, "hatch": hatch, "edgecolor": plots.ink() if hatch else colour, "linewidth": 0.5 if hatch else 0}
        axes.barh(row, width, left=begin, height=0.34, label=None if what in told else what, **style)
        told.add(what)

    for number, row in enumerate(found):
        fetch, waited, compute = (_ms(row.get(name)) or 0.0 for name in ("fetch", "waited", "compute"))
        bar(number - 0.2, 0, fetch, "waits for the fetch", "C1", "//")
        bar(number - 0.2, fetch, compute, "computes", "C0")
        bar(number + 0.2, 0, compute, "computes", "C0")
        bar(number + 0.2, compute, waited, "waits for the fetch", "C1", "//")
        beside = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate("no prefetch", (fetch + compute, number - 0.2), **beside)
        axes.annotate(f"prefetch: {row['share']:.1%} hidden", (compute + waited, number + 0.2), **beside)
        axes.annotate(f"{shown(row['engine'], 60)} to {shown(row['device'], 12)}", (0, number - 0.42), va="bottom", fontsize="small")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    longest = max(1e3 * row["fetch"] + (_ms(row.get("compute")) or 0.0) for row in found)
    axes.set(xlabel="ms", xlim=(0, 1.25 * longest), ylim=(len(found) - 0.5, -0.75))
    made.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize="small")
    return made


def _plain(axis: Any) -> None:
    """Numbers as people write them, not powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _named(record: Mapping[str, Any], rows: str, field: str) -> dict[str, Any]:
    """The record with names that a legend can hold."""
    return {**record, "device": shown(record["device"]), rows: [{**row, field: shown(row[field])} for row in record[rows]]}


def _ms(seconds: object) -> float | None:
    return 1e3 * seconds if isinstance(seconds, (int, float)) else None


def _number(value: object, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else "-"
