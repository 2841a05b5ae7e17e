"""Bars for long work: on a terminal, with the time left; in a pipe, a log or CI nothing of them is written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn


def is_shown(stream: TextIO) -> bool:
    """Whether a bar may be drawn there. A bar moves the cursor, so whoever wants no escape codes (NO_COLOR, TERM=dumb) gets none."""
    refused = bool(os.environ.get("NO_COLOR") or os.environ.get("CI")) or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not refused


def columns(unit: str) -> tuple[ProgressColumn, ...]:
    """What is worked on, the bar, how many of how many, and the time left."""
    left = TimeRemainingColumn(compact=True)
    return TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn(), TextColumn(f"{unit}, left"), left


@contextmanager
def bar(total: float, unit: str) -> Iterator[Callable[[str, float], None]]:
    """`advance(what, done)` moves the bar to `done` of `total`, on stderr. It is drawn then and by no thread, and is gone in the end."""
    console = Console(stderr=True)
    with Progress(*columns(unit), console=console, auto_refresh=False, transient=True, disable=not is_shown(sys.stderr)) as progress:
        task = progress.add_task("", total=total)
        yield lambda what, done: progress.update(task, completed=round(done, 2), description=what, refresh=True)
