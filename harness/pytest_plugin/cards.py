"""Cards of a run: leased by the process that runs tests, once, before anything of an engine is imported there.

Without workers that is the main process, before the first test, for the most that any test of the run needs. With workers it is each
worker that is given tests with cards, when it begins the first of them, for as many as that one needs: `scheduling` gives it no others.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from harness.core import leases
from harness.core.leases import LeaseError
from harness.pytest_plugin.plan import est_time
from harness.pytest_plugin.routing import runs
from harness.pytest_plugin.state import CASE, RUN

MAIN = "main"
"""In the session's record, the name of the process that runs tests where there are no workers."""
TOLD = "assay_needs"
"""In a worker's input: the file that it tells the scheduler in what its tests need."""


class Holder:
    """The lease of this process, or why it has none."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._lease: leases.Lease | None = None
        self._refused: LeaseError | None = None

    def hold(self, num_cards: int, classes: set[str]) -> None:
        """Lease once; LeaseError, the same one ever after, where that fails, and for more cards than were leased."""
        if self._refused is not None:
            raise self._refused
        if self._lease is None:
            try:
                self._lease = leases.take(num_cards, classes, deadline=self._deadline)
            except LeaseError as refused:
                self._refused = refused
                raise
        if len(self._lease.cards) < num_cards:
            raise LeaseError(f"this process leased {len(self._lease.cards)} card(s), and the test needs {num_cards}; leave --dist out")

    def told(self) -> list[dict[str, Any]]:
        """The cards, for the session's record."""
        return [{"index": card.index, "uuid": card.uuid} for card in self._lease.cards] if self._lease else []

    def release(self) -> None:
        if self._lease is not None:
            self._lease.release()


HOLDER = pytest.StashKey[Holder]()
TELLING = pytest.StashKey[Path]()
"""On the config of the main process: the file in which workers tell what their tests need."""


def pytest_configure(config: pytest.Config) -> None:
    holder = config.stash[HOLDER] = Holder(config.option.lease_deadline)
    if not hasattr(config, "workerinput"):
        # A worker keeps its cards until its process ends: until then CUDA holds memory there.
        config.add_cleanup(holder.release)


def cards_of(item: pytest.Item) -> int:
    """How many cards the item needs here; 0 for one that will not run."""
    profile = item.stash[CASE].profile if runs(item) else None
    return profile.num_cards if profile is not None and profile.platform is not None else 0


def _classes(session: pytest.Session) -> set[str]:
    """Classes that the run's tests ask for. A card is of all of them: which tests a worker will be given is not known."""
    found = {item.stash[CASE].profile.card_class for item in session.items if cards_of(item)}
    return {card_class for card_class in found if card_class is not None}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    if config.option.collectonly or config.option.plan:
        return
    needs = {item.nodeid: cards_of(item) for item in session.items}
    if hasattr(config, "workerinput"):
        told = config.workerinput.get(TOLD)
        if told:
            _tell(Path(told), session, needs)
    elif any(needs.values()):
        try:
            config.stash[HOLDER].hold(max(needs.values()), _classes(session))
        except LeaseError as refused:
            raise pytest.UsageError(str(refused)) from None
        config.stash[RUN].leases[MAIN] = config.stash[HOLDER].told()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = cards_of(item) if CASE in item.stash else 0
    if not needed:
        return
    worker = getattr(item.config, "workerinput", None)
    if worker is not None and not worker.get(TOLD):
        # Another distribution than ours may bring any test of the run to this worker.
        needed = max(map(cards_of, item.session.items))
    item.config.stash[HOLDER].hold(needed, _classes(item.session))


def _tell(path: Path, session: pytest.Session, needs: dict[str, int]) -> None:
    """Each worker writes the same; whoever is read, is whole."""
    per_module: dict[tuple[Path, str], int] = {}
    keys = {item.nodeid: (item.path, item.stash[CASE].label) for item in session.items if needs[item.nodeid]}
    for key in keys.values():
        per_module[key] = per_module.get(key, 0) + 1
    content = {
        item.nodeid: (needs[item.nodeid], est_time(item.path, item.stash[CASE].profile.name) / per_module[keys[item.nodeid]])
        for item in session.items
        if item.nodeid in keys
    }
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(content), encoding="utf-8")
    written.replace(path)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the main process, of each worker before it starts."""
    config = node.config
    if config.getvalue("dist") != "load" or not node.gateway.spec.popen:
        return
    if TELLING not in config.stash:
        folder = TemporaryDirectory(prefix="assay-run-")
        config.add_cleanup(folder.cleanup)
        config.stash[TELLING] = Path(folder.name) / "needs.json"
    node.workerinput[TOLD] = str(config.stash[TELLING])


def needs_told(config: pytest.Config) -> dict[str, tuple[int, float]]:
    """Of each test that needs cards: how many, and the seconds that it is expected to take. Empty where no worker could tell."""
    path = config.stash.get(TELLING, None)
    if path is None or not path.exists():
        return {}
    return {test: (int(cards), float(seconds)) for test, (cards, seconds) in json.loads(path.read_text(encoding="utf-8")).items()}
