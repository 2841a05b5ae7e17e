"""Where a plot is written, and whether one can be drawn here: matplotlib is an extra."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.spec import RegistryError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
MARKERS = "osD^vP*X"
"""One an engine beside its colour, which not everybody sees."""


def marker(number: int) -> str:
    """That of the engine of this number."""
    return MARKERS[number % len(MARKERS)]


def ink() -> str:
    """The colour of lines that belong to no engine: that of the labels, whatever the paper is."""
    from matplotlib import rcParams

    return str(rcParams["axes.labelcolor"])


def check(path: Path) -> None:
    """RegistryError if the plot could not be drawn: said before anything is measured."""
    if find_spec("matplotlib") is None:
        raise RegistryError("--plot needs matplotlib, which is not installed: pip install -e '.[plot]'")
    if path.suffix not in FORMATS:
        raise RegistryError(f"--plot {path}: write a name that ends in {', '.join(FORMATS)}")


def write(figure: Figure | None, path: Path) -> None:
    """Write the plot. RegistryError for none: nothing was measured."""
    if figure is None:
        raise RegistryError(f"--plot {path}: nothing was measured, so there is nothing to draw")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
