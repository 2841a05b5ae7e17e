"""Checkouts of a few lines, to collect: one kind, one engine, a suite, two lanes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.core.capabilities import VOCABULARY

SUITE = '''import pytest
from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import Level, claim
from markers import hardware_marks, register_ci, register_cuda_ci

register_ci(est_time=4, suite="small")
register_cuda_ci(est_time=10, suite="small-h100")


@claim("connector.small.first", source="a test")
def test_first(engine):
    """It is judged."""


@claim("connector.small.second", source="a test")
@requires(ConnectorCap.READERS)
def test_second(build_engine):
    """It builds its own."""
'''

LANES = """
[[lane]]
name = "small"
title = "Small"
marks = "cpu"
suites = ["small"]
environments = ["own"]
platform = "cpu"
schedules = ["merge"]
shards = 1
minutes = 1

[[lane]]
name = "small-h100"
title = "Small on a card"
marks = "slow"
suites = ["small-h100"]
environments = ["own"]
platform = "cuda"
card_class = "H100"
cards = 1
schedules = ["weekly"]
shards = 1
minutes = 1
"""

ENGINES = f"""
["connector/a"]
factory = "harness.transfer.engines.memory:MemoryConnectorEngine"
["connector/a".profiles.cpu]
marks = ["core_model"]
["connector/a".profiles.gpu]
device = "cuda"
platform = "cuda"
card_class = "H100"
num_cards = 1
["connector/a".capabilities]
{chr(10).join(f'{member.value} = "full"' for member in VOCABULARY["connector"])}
"""

CONFTEST = 'pytest_plugins = ["harness.pytest_plugin", "fixtures.own", "pytester"]\n'
TEST = "suites/connector/test_small.py"


@dataclass(frozen=True)
class Tree:
    """One checkout."""

    root: Path

    def write(self, name: str, text: str) -> None:
        """A file of it."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        """Other words in a file, which holds the old ones once."""
        text = (self.root / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} holds {old!r} {text.count(old)} times"
        self.write(name, text.replace(old, new))


def small_tree(root: Path) -> Tree:
    """A checkout in which nothing is wrong."""
    tree = Tree(root)
    tree.write("conftest.py", CONFTEST)
    tree.write("fixtures/own.py", "import pytest\n\n\n@pytest.fixture\ndef carrier(engine):\n    pass\n")
    tree.write("harness/engines.toml", ENGINES)
    tree.write("ci/lanes.toml", LANES)
    tree.write(TEST, SUITE)
    return tree
