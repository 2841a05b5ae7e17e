"""The pictures of a report, each with its numbers beside it, made from the recorded figures alone.

Without matplotlib the numbers remain: `svg` is empty, and a page says what to install.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.report import plot_benches, plot_runs, plot_style
from harness.report.runs import RecordedRun

WITHOUT = "matplotlib is not installed here, so only the numbers are shown: pip install -e '.[plot]'"
"""What a page says where pictures are missing."""


@dataclass(frozen=True)
class Picture:
    """`svg` is an `<svg>` element that may stand in a page as it is; it holds no text of a record but as text. Empty without matplotlib.

    `columns` and `rows` are the numbers that it was made from, as texts that are not escaped.
    """

    title: str
    caption: str
    svg: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def pictures(runs: Sequence[RecordedRun], benches: Iterable[Mapping[str, Any]]) -> list[Picture]:
    """What there are figures for; `benches` as `harness.report.benches.read_benches` gives them."""
    sketches = [sketch for record in benches for sketch in plot_benches.sketches(record)] + plot_runs.sketches(runs)
    drawn = plot_style.can_draw()
    return [
        Picture(
            title=sketch.title,
            caption=sketch.caption,
            svg=plot_style.svg(sketch.draw, f"picture-{number}", f"{sketch.title}. {sketch.alt}") if drawn else "",
            columns=sketch.columns,
            rows=sketch.rows,
        )
        for number, sketch in enumerate(sketches, 1)
    ]
