"""The command under a failed schedule plays just that schedule, and fails the same way."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = "suites/transfer/test_schedules.py::test_short"
FAULT = ("--fault", "transfer/withdrawn-by-an-earlier-one")


def run(*args):
    """pytest in a process of its own, as a user calls it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    # Where it sees a CI, pytest repeats the failure in its summary.
    env = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)


def shown(ran):
    """The lines of the failure text, by their names."""
    names = ("claim", "got", "expected", "stimulus", "replay")
    return {name: line[10:] for line in ran.stdout.splitlines() for name in names if line.startswith(f"{name:<9} ")}


@pytest.fixture(scope="module")
def failed():
    return run(SHORT, *FAULT)


def test_shrunk(failed):
    """The failure is told once, in ten lines, for a schedule in which every step is needed."""
    text = shown(failed)

    assert failed.returncode == 1
    assert failed.stdout.count("WRONG ANSWER") == 1
    assert len(text["stimulus"].split(";")) <= 8
    assert "Traceback" not in failed.stdout
    assert "Falsifying" not in failed.stdout
    assert text["got"].endswith("at the connector = 1")


def test_replay(failed):
    """Every line is the same, down to the command."""
    words = shlex.split(shown(failed)["replay"])
    again = run(*words[1:])

    assert words[0] == "pytest"
    assert "--schedule" in words
    assert again.returncode == 1
    assert shown(again) == shown(failed)


def test_another_schedule():
    """With a schedule that the fault does not show in, it passes: nothing is drawn beside it."""
    assert run(SHORT, *FAULT, "--schedule", "send a 10; abort a; send a 10; receive a").returncode == 0


def test_unreadable():
    """A schedule that cannot be read stops the run, and says which word."""
    ran = run(SHORT, "--schedule", "send a 10; sratr a")

    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--schedule: 'sratr a': unknown step 'sratr'" in ran.stderr
