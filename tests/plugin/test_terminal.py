"""What a person sees at the terminal: the summary at the end, and the bar while it takes long."""

import os
import re
import sys

import pytest

from tests.terminal import in_pipe, on_terminal

ESCAPE = "\x1b"
BROKEN = 'judge.equal(engine.echo(1), 2, "echo")'
SLOW = """
import time
until = time.monotonic() + 0.6
while time.monotonic() < until:
    pass
judge.equal(engine.echo(1), 1, "echo")
"""


@pytest.fixture
def command(suite):
    """A command line that runs the suite in a process of its own."""
    return lambda *args: [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        f"--rootdir={suite.path}",
        *suite.args(),
        *args,
        str(suite.file),
    ]


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI", "BUILD_NUMBER", "COLUMNS")}
    return {**kept, "TERM": "xterm", **more}


def shown(written):
    """Lines without colours."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", written).splitlines()


def test_what_failed_stands_below_its_engine_with_a_command(suite):
    """One line a failure; the seed that every run has is left out."""
    suite.check(BROKEN, "one")
    suite.check('judge.equal(engine.echo(1), 1, "echo")', "two")
    lines = suite.run().stdout.splitlines()
    place = lines.index("connector/toy@cpu: 1 failed")

    line = lines[place + 1]
    assert line.startswith('  FAIL connector.toy.one  pytest "suites/connector/test_toy.py::test_one[connector/toy@cpu]" --adapter toy:Toy')
    assert "--seed" not in line


def test_a_seed_of_ones_own_is_in_the_command(suite):
    suite.check(BROKEN, "one")

    (line,) = [line for line in suite.run("--seed", "7").stdout.splitlines() if line.startswith("  FAIL connector.toy.one")]
    assert "--seed 7" in line


def test_nothing_failed_is_not_told(suite):
    suite.check('judge.equal(engine.echo(1), 1, "echo")')

    assert " failed" not in suite.run().stdout


def test_no_line_of_the_summary_is_broken_at_80_columns(suite, command):
    """The table fits, and a command has a line to itself, whole."""
    suite.check(BROKEN, "one")
    lines = shown(on_terminal(command("--tb=no"), environment())[1])
    start = lines.index(next(line for line in lines if line.startswith("Verdicts")))
    place = next(number for number, line in enumerate(lines) if line.startswith("  FAIL connector.toy.one"))

    assert max(map(len, lines[start:place])) <= 80
    assert lines[place + 1].lstrip().startswith(("pytest ", "PYTHONPATH="))


def test_a_long_run_has_a_bar_on_a_terminal(suite, command):
    for name in ("one", "two", "three", "four"):
        suite.check(SLOW, name)
    status, written = on_terminal(command(), environment())

    assert status == 0
    assert re.search(r"3/4.*tests, left", written)
    assert "4 passed" in shown(written)[-1]
    # As often as it was drawn it was taken away.
    assert len(re.findall(r"\x1b\[2K[^\x1b]", written)) <= len(re.findall(r"\x1b\[2K\x1b\[1A", written))


def test_with_workers_the_bar_is_the_controllers(suite, command):
    for name in ("one", "two", "three", "four"):
        suite.check(SLOW, name)
    status, written = on_terminal(command("-n", "1"), environment())

    assert status == 0
    assert re.search(r"[123]/4.*tests, left", written)


@pytest.mark.parametrize(
    ("args", "more"), [((), {"NO_COLOR": "1"}), (("-q",), {"NO_COLOR": ""}), ((), {"CI": "1"}), (("-s",), {}), ((), {"TERM": "dumb"})]
)
def test_a_run_that_wants_no_bar_has_none(suite, command, args, more):
    for name in ("one", "two", "three"):
        suite.check(SLOW, name)
    status, written = on_terminal(command(*args), environment(**more))

    assert (status, "tests, left" in written) == (0, False)


def test_no_color_leaves_no_escape_codes(suite, command):
    """In all of a run with a failure; the twin without the variable has some."""
    suite.check(BROKEN, "one")
    plain, coloured = (on_terminal(command(), environment(**more))[1] for more in ({"NO_COLOR": "1"}, {}))

    assert ESCAPE not in plain
    assert ESCAPE in coloured


def test_a_pipe_has_neither_bar_nor_escape_codes(suite, command):
    for name in ("one", "two", "three"):
        suite.check(SLOW, name)
    status, written = in_pipe(command(), environment())

    assert (status, ESCAPE in written, "tests, left" in written) == (0, False, False)
