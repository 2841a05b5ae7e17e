"""The command under a failed schedule of slots plays just that schedule, and fails the same way."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = "suites/duplex/test_schedules.py::test_short"
FAULT = ("--fault", "duplex/pause-ends-prefill")


@pytest.fixture
def run(pytester, monkeypatch):
    """pytest as a user calls it from the root of the checkout."""
    monkeypatch.chdir(ROOT)
    for name in ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return lambda schedule: pytester.runpytest_inprocess("-p", "no:cacheprovider", SHORT, *FAULT, "--schedule", schedule)


def test_fails_again(run):
    """It is told at its tick, and what would have come after it is not part of the text."""
    ran = run("watch 1; recycle 0 default; pause 0 1; tick 9")

    assert ran.ret == 1
    assert "tick 1: frame[slot 0] = 'warmup, epoch 1'" in ran.stdout.str()
    assert '--schedule "watch 1; recycle 0 default; pause 0 1; tick 2"' in ran.stdout.str()


def test_another_schedule(run):
    """With a schedule that the fault does not show in, it passes: nothing is drawn beside it."""
    ran = run("watch 1; pause 0 1; tick 3; recycle 0 default; tick 2")

    assert ran.ret == 0
    ran.assert_outcomes(passed=1)


@pytest.mark.parametrize("schedule", ["watch 1; tikc 3", "watch one"])
def test_unreadable(run, schedule):
    """What is a schedule of no kind stops the run."""
    ran = run(schedule)

    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert "(duplex)" in ran.stderr.str()
