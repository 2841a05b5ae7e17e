"""The command under a failed schedule of requests plays just that schedule, and fails the same way."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = "suites/tier/test_schedules.py::test_short[tier/reference@cpu~host-first-in-first-out]"
FAULT = ("--fault", "tier/host-first-in-first-out")


@pytest.fixture
def run(pytester, monkeypatch):
    """pytest as a user calls it from the root of the checkout."""
    monkeypatch.chdir(ROOT)
    for name in ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return lambda schedule: pytester.runpytest_inprocess("-p", "no:cacheprovider", SHORT, *FAULT, "--schedule", schedule)


def test_fails_again(run):
    """It is told at its step, and what would have come after it is not part of the text."""
    ran = run("submit a 96 1; submit salted 95 1; pump 1; retract salted; generate salted 65 1; generate a 33 1; evict; pump 3")

    assert ran.ret == 1
    assert "step 6, generate a 33 1: tokens that a 33 1 reused" in ran.stdout.str()
    assert 'generate salted 65 1; generate a 33 1"' in ran.stdout.str()


def test_another_schedule(run):
    """With a schedule that the fault does not show in, it passes: nothing is drawn beside it."""
    ran = run("generate a 65 1; evict; generate a 65 1")

    assert ran.ret == 0
    ran.assert_outcomes(passed=1)


def test_too_long(run):
    """A prompt that the server of the schedules has no room for is no verdict on the engine."""
    ran = run("generate a 9999 1")

    assert "ERROR" in ran.stdout.str()
    assert "there is no room for so many tokens" in ran.stdout.str()


@pytest.mark.parametrize("schedule", ["generate a", "evcit"])
def test_unreadable(run, schedule):
    """What is a schedule of no kind stops the run."""
    ran = run(schedule)

    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert "(tier)" in ran.stderr.str()
