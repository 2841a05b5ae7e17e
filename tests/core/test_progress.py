"""The bar of long work: on a terminal and nowhere else."""

import os
import sys
from pathlib import Path

import pytest

from tests.terminal import in_pipe, on_terminal

ROOT = Path(__file__).parents[2]
WORK = "from harness import progress\nwith progress.bar(4, 'parts') as move:\n  [move('sweeping [b]', n) for n in range(5)]\nprint('done')"
COMMAND = [sys.executable, "-c", WORK]


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **more}


def test_a_terminal_shows_what_how_many_and_the_time_left():
    status, written = on_terminal(COMMAND, environment())

    assert (status, written.endswith("done\r\n")) == (0, True)
    assert "sweeping [b]" in written
    assert "2/4" in written
    assert "parts, left" in written


def test_a_pipe_shows_the_result_alone():
    assert in_pipe(COMMAND, environment()) == (0, "done\n")


@pytest.mark.parametrize("refusal", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CI": "true"}])
def test_a_terminal_that_wants_none_gets_none(refusal):
    """No bar, and not one escape code."""
    assert on_terminal(COMMAND, environment(**refusal)) == (0, "done\r\n")
