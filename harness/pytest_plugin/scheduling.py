"""Under pytest-xdist the tests that share a boot go to one worker.

xdist's own `--dist loadgroup` would do, but as of 3.8.0 it marks groups in a place that pytest 9.2 no longer reads. The case in a
test's name says the same without marks.
"""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Takes the place of the default distribution, `load`; a --dist that a user asks for is left alone."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class BootScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return boot_of(nodeid)

        def remove_node(self, node: Any) -> str | None:
            # As of 3.8.0 xdist hands the test that took a worker down to the next worker, over and over, and units that are done as well.
            left = self.assigned_work[node]
            crashed = next((test for unit in left.values() for test, done in unit.items() if not done), None)
            for unit in left.values():
                if crashed in unit:
                    unit[crashed] = True
            for scope in [scope for scope, unit in left.items() if all(unit.values())]:
                del left[scope]
            super().remove_node(node)
            return crashed

        def _reschedule(self, node: Any) -> None:
            super()._reschedule(node)
            # A worker starts a test only once it knows what follows it: with one test and no word it would wait for ever.
            if not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                self._reschedule(node)

    return BootScheduling(config, log)


def boot_of(nodeid: str) -> str:
    """`transfer/reference@cpu` of `suites/...::test_bits[transfer/reference@cpu]`; a test without parameters stands for itself."""
    _, bracket, parameters = nodeid.partition("[")
    return parameters.rstrip("]") if bracket else nodeid
