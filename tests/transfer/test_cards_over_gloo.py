"""The suites of several cards, run whole on a CPU: the very tests, on simulated cards, with ranks that meet over gloo in place of NCCL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.simulated_cards import simulate
from harness.core.devices import cards
from harness.report.runs import read_run

ROOT = Path(__file__).parents[2]
SUITES = ("suites/transfer/test_cards.py", "suites/transfer/test_cards_four.py")
RUN = ["-p", "no:cacheprovider", "--adapter", "gloo_cards:Gloo", "--engine", "transfer/gloo"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs the suites on so many simulated cards, in a process of its own, and reads what it recorded."""

    def start(number, *args):
        simulate(tmp_path / "driver", number, monkeypatch)
        log, path = tmp_path / "run.jsonl", os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
        command = [sys.executable, "-m", "pytest", *SUITES, *RUN, f"--report-log={log}", *args]
        ended = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=600, check=False
        )
        return ended, read_run(log)

    yield start
    cards.cache_clear()


def test_on_four_cards(run):
    """Every claim holds, and the process leased four cards once."""
    ended, recorded = run(4)

    assert {result.claim: str(result.verdict.value) for result in recorded.results if result.verdict.fails_the_run} == {}
    assert (ended.returncode, len(recorded.results)) == (0, 14)
    assert [card["index"] for card in recorded.session["leases"]["main"]] == [0, 1, 2, 3]


def test_on_two_cards(run):
    """The claims of four are UNAVAILABLE, and say why."""
    _, recorded = run(2, "-k", "test_split or four")

    assert {result.reason for result in recorded.results if "four" in result.claim} == {
        "needs 4 card(s) of class H100; 2 of 2 here fit (NVIDIA H100 80GB HBM3)"
    }
    assert [result.verdict.value for result in recorded.results if result.claim == "transfer.cards.split"] == ["PASS"]


def test_wrong_answers_on_cards_are_seen(run):
    """All of them but the one that gloo cannot show: which card a payload lies on."""
    ended, _ = run(4, "--prove", "transfer/*-on-cards")

    assert (ended.returncode, "wrong inputs failed 6 of 6" in ended.stdout) == (0, True)
