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

    return BootScheduling(config, log)


def boot_of(nodeid: str) -> str:
    """`transfer/reference@cpu` of `suites/...::test_bits[transfer/reference@cpu]`; a test without parameters stands for itself."""
    _, bracket, parameters = nodeid.partition("[")
    return parameters.rstrip("]") if bracket else nodeid
