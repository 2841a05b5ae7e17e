"""A comparison as Markdown for a CI summary, and as one page of HTML that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.report import markdown
from harness.report.diff import Comparison
from harness.report.diff_sections import headline, sections, sides, summary

_PAGE = "diff.html.jinja"


def to_markdown(found: Comparison) -> str:
    """The first five lines are the answer. No HTML, and no text of a record means anything to a renderer."""
    lines = [f"# {headline(found)}", "", f"{summary(found)}.", "", sides(found)]
    for section in sections(found):
        lines += ["", f"## {section.title} ({len(section.rows)})", ""]
        lines += [f"{section.note}.", ""] if section.note else []
        lines += markdown.table(section.columns, section.rows)
    return "\n".join(lines) + "\n"


def to_html(found: Comparison) -> str:
    """The same, with every row and the commands that show a failure again. No script; light and dark as the reader's system is."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template(_PAGE)
    return page.render(
        headline=headline(found), summary=summary(found), sides=sides(found), sections=sections(found), bad=found.regressions > 0
    )
