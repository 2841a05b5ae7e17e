"""Turns templates into pages: everything in them is escaped, styles and script are inline and named by their hash."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.core.verdict import Verdict
from harness.report.faces import GLYPHS, MEANINGS, ORDER
from harness.report.matrix import clip
from harness.report.slugs import page_name

_HERE = Path(__file__).parent
_LONGEST = 16_000
"""Characters of one text of a record on a page; no failure of ours is that long, and an engine's own words may be."""


@cache
def environment() -> Environment:
    """The templates' environment. Autoescape has no exception: markup is only what stands in a template or a file of ours."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, script = (_HERE / "assets/site.css").read_text(encoding="utf-8"), (_HERE / "assets/site.js").read_text(encoding="utf-8")
    made.globals.update(
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
        glyphs=GLYPHS,
        meanings=MEANINGS,
        order=ORDER,
        Verdict=Verdict,
        page_name=page_name,
    )
    made.filters.update(whole=lambda text: clip(str(text), _LONGEST), number=_number, clip=clip)
    return made


def policy(style: str, script: str) -> str:
    """The Content-Security-Policy: this style, this script, pictures that are in the page, and nothing else."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def picture(svg: str) -> str:
    """A picture as the address of an image: no script of it runs there, and no style of it reaches the page."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8", "replace")).decode()


def render(template: str, **told: Any) -> str:
    """A page. Raises jinja2.UndefinedError for what the template needs and is not given."""
    return environment().get_template(template).render(**told)


def _number(value: float) -> str:
    return f"{value:,.6g}"
