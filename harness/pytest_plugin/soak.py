"""Long drawings wait to be asked for: a test with the mark soak runs where -m names the mark, or where it is named itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if re.search(r"\bsoak\b", config.option.markexpr or ""):
        return
    waiting = [item for item in items if item.get_closest_marker("soak") and not _is_named(item, config.args)]
    if waiting:
        config.hook.pytest_deselected(items=waiting)
        items[:] = [item for item in items if item not in waiting]


def _is_named(item: pytest.Item, args: list[str]) -> bool:
    """Whether an argument of the command line is the test's own id, as in a replay, with or without its parameters."""
    names = (item.name, getattr(item, "originalname", item.name))
    ids = (arg.partition("::") for arg in args)
    return any(Path(path).name == item.path.name and name.rpartition("::")[2] in names for path, _, name in ids)
