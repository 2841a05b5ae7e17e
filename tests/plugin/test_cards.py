"""Workers that lease cards, on simulated ones: a real run in processes of its own, in which each test notes what it was given."""

import pytest

from fixtures.simulated_cards import simulate, uuid_of

NOTES = """
import os
import time
from pathlib import Path

LOG = Path(__file__).parents[2] / "cards.log"


def note(*words):
    with LOG.open("a") as log:
        print(os.environ.get("PYTEST_XDIST_WORKER", "main"), *words, file=log)


def saw(judge, number, alone):
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    note("begin", visible)
    judge.equal(len(visible.split(",")), number, "cards that CUDA would see")
    give_up = time.monotonic() + 300
    while LOG.read_text().count("begin") < alone:
        judge.demand(time.monotonic() < give_up, got="others have not begun", expected=f"{alone} tests at once")
        time.sleep(0.01)
    note("end", visible)
"""
"""What the inner suite's tests call. `alone`: how many tests must have begun before this one may end."""

CONFTEST = """
from pathlib import Path

from harness.core import leases

pytest_plugins = ["harness.pytest_plugin"]
leases.common_folder = lambda: Path(__file__).parent / "locks"
"""


class Notes:
    """What the tests of one run noted."""

    def __init__(self, suite):
        path = suite.path / "cards.log"
        self.lines = [line.split(" ", 2) for line in path.read_text().splitlines()] if path.exists() else []

    def given(self):
        """Worker to the cards that it saw, in each test."""
        found = {}
        for worker, word, cards in self.lines:
            if word == "begin":
                found.setdefault(worker, []).append(cards)
        return found

    def overlaps(self):
        """Cards that two workers had at one time: a worker holds its own from its first test to its last."""
        found, first, last = [], {}, {}
        for at, (worker, _word, _cards) in enumerate(self.lines):
            first.setdefault(worker, at)
            last[worker] = at
        held = [(first[w], last[w], set(cards[0].split(",")), w) for w, cards in self.given().items()]
        for i, (begun, ended, cards, one) in enumerate(held):
            found += [(one, other) for b, e, c, other in held[i + 1 :] if cards & c and b < ended and begun < e]
        return found


@pytest.fixture
def cards_suite(suite, tmp_path, monkeypatch):
    """An inner suite on a machine with that many cards: `cards_suite(8)`."""

    def make(number):
        simulate(tmp_path / "driver", number, monkeypatch)
        suite.path.joinpath("conftest.py").write_text(CONFTEST)
        suite.write(NOTES)
        return suite

    return make


def seeing(suite, name, number, begun=0):
    """A test that notes its cards, of which it expects so many."""
    suite.check(f"saw(judge, {number}, {begun})", name)


def engines(*names):
    return [word for name in names for word in ("--adapter", f"toy:{name.title()}", "--engine", f"connector/{name}")]


def spawn(suite, *names, workers, more=()):
    """A run of those engines in a process of its own; 0 workers: none."""
    return suite.collect(
        lambda *a: suite.pytester.runpytest_subprocess(*a, timeout=600), *engines(*names), *(["-n", str(workers)] if workers else []), *more
    )


def test_a_group_keeps_all_cards_busy(cards_suite):
    """Four tests of one engine run at once, each on a card of its own: none could end before all had begun."""
    suite = cards_suite(4)
    for name in "abcd":
        seeing(suite, name, 1, begun=4)
    ran = spawn(suite, "single", workers=4)
    notes = Notes(suite)

    assert ran.counts() == {"PASS": 4}
    assert sorted(cards for given in notes.given().values() for cards in given) == [uuid_of(i) for i in range(4)]
    assert ran.session()["leases"] == {w: [{"index": int(c[0][11]), "uuid": c[0]}] for w, c in sorted(notes.given().items())}


def test_mixed_groups(cards_suite):
    """Tests of one, two and four cards all run once, each with its number, no card is given twice, and all eight are used."""
    suite = cards_suite(8)
    for name in "abcd":
        suite.check("saw(judge, {'single': 1, 'double': 2, 'quad': 4}[engine.name.rpartition('/')[2]], 0)", name)
    ran = spawn(suite, "single", "double", "quad", workers=8)
    notes = Notes(suite)

    assert ran.counts() == {"PASS": 12}
    assert sum(map(len, notes.given().values())) == 12
    assert all(len(set(cards)) == 1 for cards in notes.given().values())
    assert notes.overlaps() == []
    assert {c for given in notes.given().values() for cards in given for c in cards.split(",")} == {uuid_of(i) for i in range(8)}
    assert set(ran.session()["leases"]) == set(notes.given())


def test_without_locks_workers_overlap(cards_suite):
    """The twin: where nobody locks, all are given the first card, and the check above sees it."""
    suite = cards_suite(2)
    with suite.path.joinpath("conftest.py").open("a") as file:
        file.write("from harness.core import locks\nlocks.FileLock.try_lock = lambda lock: True\n")
    for name in "ab":
        seeing(suite, name, 1, begun=2)
    spawn(suite, "single", workers=2)

    assert Notes(suite).overlaps() != []


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_fewer_workers_than_groups(cards_suite, workers):
    """Nothing waits for ever: a process that holds more cards than a test needs runs it where nobody else is left."""
    suite = cards_suite(4)
    for name in "ab":
        suite.check("saw(judge, len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')), 0)", name)
    ran = spawn(suite, "single", "double", "quad", workers=workers)

    assert ran.counts() == {"PASS": 6}
    assert Notes(suite).overlaps() == []


def test_fewer_cards_than_workers(cards_suite):
    """Two engines on the one card there is, beside an engine that needs none: each test runs once."""
    suite = cards_suite(1)
    for name in "ab":
        suite.check("judge.equal(engine.echo(1), 1, 'echo')", name)
    ran = spawn(suite, "single", "big", "toy", workers=3)

    assert ran.counts() == {"PASS": 8}
    assert list(ran.session()["leases"].values()) == [[{"index": 0, "uuid": uuid_of(0)}]]


def test_a_worker_that_dies_leaves_its_cards(cards_suite):
    """The one that takes its place leases them, and runs what is left."""
    suite = cards_suite(2)
    suite.check("os._exit(7)", "dies")
    seeing(suite, "next", 2)
    ran = spawn(suite, "double", workers=1)

    assert ran.ret == 1
    assert ran.counts() == {"PASS": 1}
    assert ran.stdout.count("crashed while running") == 1


def test_cards_that_somebody_holds(cards_suite, tmp_path, monkeypatch):
    """Without workers the run does not start, and says who holds them; a worker says the same of each of its tests, after one wait."""
    suite = cards_suite(1)
    for name in "ab":
        seeing(suite, name, 1)
    from harness.core import leases

    held = leases.take(1, folder=suite.path / "locks")
    alone = spawn(suite, "single", workers=0, more=["--lease-deadline", "0.2"])
    held.release()
    again = leases.take(1, folder=suite.path / "locks")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    worker = spawn(suite, "single", workers=1, more=["--lease-deadline", "0.2"])
    again.release()

    assert alone.ret == 4
    assert "waited 0.2 s for 1 card(s): card 0 is held by pid" in alone.printed
    assert worker.counts() == {"ERROR": 2}
    assert "waited 0.2 s for 1 card(s): card 0 is held by pid" in worker.printed


def test_another_distribution(cards_suite):
    """Where a user has xdist distribute its own way, each worker leases for the most that any test needs."""
    suite = cards_suite(4)
    suite.check("saw(judge, 2, 0)", "a")
    ran = spawn(suite, "single", "double", workers=2, more=["--dist", "each"])

    assert set(ran.verdicts().values()) == {"PASS"}
    assert Notes(suite).overlaps() == []
