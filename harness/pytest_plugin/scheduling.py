"""Under pytest-xdist the tests that share a boot go to one worker; those with cards, split over several, to workers that lease them.

xdist's own `--dist loadgroup` would do for the first, but as of 3.8.0 it marks groups in a place that pytest 9.2 no longer reads. The case
in a test's name says the same without marks.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.devices import cards
from harness.core.dispatch import Dispatcher, Unit, Word, units_of
from harness.pytest_plugin.cards import needs_told


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Takes the place of the default distribution, `load`; a --dist that a user asks for is left alone."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class BootScheduling(LoadScopeScheduling):
        dispatcher: Dispatcher | None = None
        """Hands out the units of a run in which tests need cards."""

        def _split_scope(self, nodeid: str) -> str:
            return self._unit_of[nodeid] if self.dispatcher else boot_of(nodeid)

        def schedule(self) -> None:
            needs = needs_told(config) if self.collection is None else {}
            if needs and self._check_nodes_have_same_collection():
                self.collection = list(next(iter(self.registered_collections.values())))
                self._divide(needs)
            if self.dispatcher is None:
                super().schedule()
            else:
                self._serve()

        def _divide(self, needs: dict[str, tuple[int, float]]) -> None:
            units = units_of(groups_of(self.collection, needs), {t: s for t, (_, s) in needs.items()}, len(cards()), len(self.nodes))
            self.dispatcher = Dispatcher(units, len(cards()), self.nodes)
            self._units = {unit.name: unit for unit in units}
            self._unit_of = {test: unit.name for unit in units for test in unit.tests}
            self.workqueue.update((unit.name, dict.fromkeys(unit.tests, False)) for unit in self.dispatcher.waiting)

        def add_node(self, node: Any) -> None:
            super().add_node(node)
            if self.dispatcher:
                self.dispatcher.came(node)

        def remove_node(self, node: Any) -> str | None:
            # As of 3.8.0 xdist hands the test that took a worker down to the next worker, over and over, and units that are done as well.
            left = self.assigned_work[node]
            crashed = next((test for unit in left.values() for test, done in unit.items() if not done), None)
            for unit in left.values():
                if crashed in unit:
                    unit[crashed] = True
            for scope in [scope for scope, unit in left.items() if all(unit.values())]:
                del left[scope]
            if self.dispatcher is None:
                super().remove_node(node)
                return crashed
            del self.assigned_work[node]
            self.workqueue.update(left)
            if node in self.dispatcher.leased:
                # xdist keeps a worker's process until the run ends, and CUDA keeps memory for as long as the process.
                node.gateway.exit()
            self.dispatcher.gone(node, [self._units[scope] for scope in left])
            self._serve()
            return crashed

        def _reschedule(self, node: Any) -> None:
            if self.dispatcher is not None:
                self._serve()
                return
            super()._reschedule(node)
            # A worker starts a test only once it knows what follows it: with one test and no word it would wait for ever.
            if not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                self._reschedule(node)

        def _serve(self) -> None:
            """Give every worker work, or word that there is none; again while that changes what those that hold may be told."""
            served = True
            while served:
                served = False
                for node in [n for n in self.nodes if n in self.registered_collections and not n.shutting_down]:
                    pending = self._pending_of(self.assigned_work[node])
                    if pending < 2:
                        served |= self._act(node, self.dispatcher.next(node, idle=not pending))

        def _act(self, node: Any, word: Unit | Word) -> bool:
            """Whether anything changed."""
            if word is Word.END:
                node.shutdown()
            elif isinstance(word, Unit):
                work = self.assigned_work[node][word.name] = self.workqueue.pop(word.name)
                collection = self.registered_collections[node]
                node.send_runtest_some([collection.index(test) for test, done in work.items() if not done])
            return word is not Word.HOLD

    return BootScheduling(config, log)


def groups_of(tests: list[str], needs: dict[str, tuple[int, float]]) -> list[Unit]:
    """What shares a boot and a number of cards, in the order of the tests."""
    groups: dict[tuple[str, int], list[str]] = {}
    for test in tests:
        number, _ = needs.get(test, (0, 0.0))
        groups.setdefault((boot_of(test), number), []).append(test)
    return [Unit(f"{boot} on {number} card(s)" if number else boot, tuple(own), number) for (boot, number), own in groups.items()]


def boot_of(nodeid: str) -> str:
    """`transfer/reference@cpu` of `suites/...::test_bits[transfer/reference@cpu]`; a test without parameters stands for itself."""
    _, bracket, parameters = nodeid.partition("[")
    return parameters.rstrip("]") if bracket else nodeid
