"""A bar with the time left below what pytest prints, on a terminal alone.

It stands on the line after pytest's own, and the cursor goes back to where pytest left it. It is drawn between pytest's writes and taken
away before the next one, by no thread, so that nothing is ever written into it. Under xdist only the process with the terminal has one.
"""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from harness import progress

EVERY = 1.0
"""Seconds between two drawings: a shorter run is over before anybody looks for a bar."""


class Bar:
    """Moves with each test that is over."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal, self._writer = terminal, terminal._tw
        self._console = Console(file=io.StringIO(), width=max(self._writer.fullwidth - 1, 20), force_terminal=True)
        self._progress = Progress(*progress.columns("tests"), console=self._console, auto_refresh=False)
        self._task = self._progress.add_task("", total=None)
        self._begun, self._shown = time.monotonic(), False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logstart(self, nodeid: str) -> Any:
        self._erase()
        yield
        what = nodeid.rpartition("[")[2].rstrip("]")
        self._progress.update(self._task, total=self._terminal._session.testscollected, description=what)
        self._draw()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self) -> Any:
        self._erase()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logfinish(self) -> Any:
        self._erase()
        yield
        self._progress.advance(self._task)
        if not self._progress.finished:
            self._draw()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._erase()

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        self._erase()

    def _draw(self) -> None:
        if time.monotonic() - self._begun < EVERY:
            return
        file = io.StringIO()
        self._console.file = file
        self._console.print(self._progress.get_renderable(), end="")
        self._below(file.getvalue().replace("\n", ""))
        self._shown = True

    def _erase(self) -> None:
        if self._shown:
            self._below("")
            self._shown = False

    def _below(self, line: str) -> None:
        # Down, which may scroll, then up again: a stored position would not scroll with the text.
        column = self._writer.width_of_current_line + 1
        self._writer._file.write(f"\n\x1b[2K{line}\x1b[1A\x1b[{column}G")
        self._writer.flush()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    option = config.option
    asked = terminal is not None and option.verbose >= 0 and option.capture != "no" and not option.usepdb
    if asked and not hasattr(config, "workerinput") and progress.is_shown(terminal._tw._file):
        config.pluginmanager.register(Bar(terminal), "assay-progress")
