"""How pictures of the report look, and how a figure of matplotlib becomes SVG that may stand in a page.

Text is text, in the page's own colour (`currentColor`), and so are axes: the picture is read on light paper and on dark. Lines have
colours that keep a contrast of 3 to 1 with both, and each its own marker. The same figures give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#2f86d6", "#d9640f", "#1f9b63", "#a862d6", "#d94a5c", "#8d8012", "#138fa3", "#808080")
LIGHT, DARK = "#ffffff", "#16181c"
"""Paper that the colours are meant for."""
_INK = "#010203"
"""Stands for the page's own colour while matplotlib draws."""
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def can_draw() -> bool:
    """Whether matplotlib is here; it is an extra (`pip install -e '.[plot]'`)."""
    return find_spec("matplotlib") is not None


def svg(make: Callable[[], Figure], name: str, alt: str) -> str:
    """Draw it, as an `<svg>` element whose ids begin with `name`, unique in its page; `alt` is what a reader hears who does not see it."""
    with _style(name):
        figure, written = make(), io.BytesIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _embeddable(written.getvalue(), name, alt)


@contextmanager
def _style(name: str) -> Iterator[None]:
    from matplotlib import cycler, rc_context

    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color", "hatch.color")
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,  # a name with two dollars in it is no formula
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.grid": True,
        "grid.color": "#808080",
        "grid.alpha": 0.25,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "font.size": 10,
        **dict.fromkeys(inks, _INK),
    }
    with rc_context(settings), warnings.catch_warnings():
        # Letters that its fonts lack are the browser's to show.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def _embeddable(written: bytes, name: str, alt: str) -> str:
    ET.register_namespace("", _SVG)
    root = ET.fromstring(written)
    for parent in list(root.iter()):
        for child in list(parent):
            # A style sheet would be the whole page's, and the description of the file helps nobody here.
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            element.set(key.replace(f"{{{_XLINK}}}", ""), _own(key, value, name))
    for size in ("width", "height"):
        root.attrib.pop(size)
    root.attrib |= {
        "role": "img",
        "aria-label": shown(alt, 400),
        "style": "width: 100%; max-width: 46rem; height: auto; stroke-linejoin: round",
    }
    return ET.tostring(root, encoding="unicode")


def _own(key: str, value: str, name: str) -> str:
    """The attribute with ids of this picture alone, and the page's ink."""
    value = value.replace(_INK, "currentColor")
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href"):
        return re.sub(r"^#", f"#{name}-", value)
    return value.replace("url(#", f"url(#{name}-")


def shown(text: str, most: int = 48) -> str:
    """A name for a legend or an axis: on one line, without what cannot be printed, and short."""
    flat = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
    flat = flat if len(flat) <= most else f"{flat[:most]}..."
    # matplotlib leaves out of a legend what begins with _.
    return f" {flat}" if flat.startswith("_") else flat


def contrast(first: str, second: str) -> float:
    """WCAG 2's contrast ratio of two colours (`#rrggbb`), 1 to 21."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
