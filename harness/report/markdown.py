"""Markdown that holds only what we meant: text of engines cannot leave its cell, nor become a link, a mention or HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MEANS = re.compile(r"(?![A-Za-z0-9@ ,./%+=()-]|(?<=[A-Za-z0-9])_(?=[A-Za-z0-9])|:(?=[A-Za-z0-9 ])).", re.ASCII)
"""What may mean something: all but plain characters, `_` inside a word, and `:` before a word."""
_MENTION = re.compile(r"(?<![A-Za-z0-9])@|@(?=\S*\.)")
_LINK = re.compile(r"\bwww\.", re.IGNORECASE)


def text(value: object, most: int = 200) -> str:
    """As one line of plain text, cut after `most` characters. What could mean something to a renderer is written as its number."""
    flat = " ".join(str(value).split())
    flat = flat if len(flat) <= most else f"{flat[:most]}..."
    # A joiner of no width after it: @name would call that person, and addresses become links, whichever way the characters are written.
    flat = _LINK.sub(lambda found: f"{found[0][:3]}\u2060.", _MENTION.sub("@\u2060", flat))
    return _MEANS.sub(lambda found: f"&#{ord(found[0])};" if found[0].isprintable() or found[0] == "\u2060" else "&#65533;", flat)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], most: int = 50) -> list[str]:
    """Lines of a table; rows beyond `most` are counted below it. Every cell is escaped."""
    rows = list(rows)
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    lines += [f"| {' | '.join(text(cell) or ' ' for cell in row)} |" for row in rows[:most]]
    return [*lines, *(["", f"and {len(rows) - most} more"] if len(rows) > most else [])]
