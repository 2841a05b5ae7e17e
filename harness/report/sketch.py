"""A picture before it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Sketch:
    """`alt` says in words what is to be seen; `columns` and `rows` are the numbers that `draw` draws."""

    title: str
    caption: str
    alt: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    draw: Callable[[], Figure]
