"""The command under a failed schedule of slots plays just that schedule, and fails the same way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = "suites/duplex/test_schedules.py::test_short"
FAULT = ("--fault", "duplex/pause-ends-prefill")


def run(schedule):
    """pytest in a process of its own, as a user calls it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", SHORT, *FAULT, "--schedule", schedule]
    env = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_fails_again():
    """It is told at its tick, and what would have come after it is not part of the text."""
    ran = run("watch 1; recycle 0 default; pause 0 1; tick 9")

    assert ran.returncode == 1
    assert "tick 1: frame[slot 0] = 'warmup, epoch 1'" in ran.stdout
    assert '--schedule "watch 1; recycle 0 default; pause 0 1; tick 2"' in ran.stdout


def test_another_schedule():
    """With a schedule that the fault does not show in, it passes: nothing is drawn beside it."""
    assert run("watch 1; pause 0 1; tick 3; recycle 0 default; tick 2").returncode == 0


@pytest.mark.parametrize("schedule", ["watch 1; tikc 3", "watch one"])
def test_unreadable(schedule):
    """What is a schedule of no kind stops the run."""
    ran = run(schedule)

    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "(duplex)" in ran.stderr
