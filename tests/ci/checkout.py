"""A checkout with a suite of its own, which a node's shards run: a copy of ci and harness beside the toy engine and three lanes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harness.core.capabilities import ConnectorCap

ROOT = Path(__file__).parents[2]

SUITE = '''
import os
import threading
from pathlib import Path

import pytest

from harness.core.claims import claim
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=60, suite="small")
HERE = Path(__file__).parents[2]


def note(name, text):
    """A line in a file of the checkout: what happened outlives the process, and the node."""
    with (HERE / name).open("a") as file:
        file.write(f"{text}\\n")


def hang():
    """Until it is killed."""
    with (HERE / "bell").open("w") as bell:
        bell.write(f"{os.getpid()} {os.environ['RAY_RAYLET_PID']}\\n")
    threading.Event().wait(120)
    raise TimeoutError("nobody killed it")


def is_first(name):
    try:
        (HERE / name).open("x").close()
    except FileExistsError:
        return False
    return True


@pytest.mark.core_model
@claim("connector.small.first", source="the toy")
def test_first(engine, judge, request):
    """It says what it is told."""
    note("runs", request.node.nodeid)
    judge.equal(engine.echo(1), 1, "echo")


@pytest.mark.core_model
@claim("connector.small.second", source="the toy")
def test_second(engine, judge, request):
    """It does so when another died before."""
    note("runs", request.node.nodeid)
    if is_first("died"):
        hang()
    judge.equal(engine.echo(2), 2, "echo")


@pytest.mark.core_model
@claim("connector.small.third", source="the toy")
def test_third(engine, judge, request):
    """It goes on doing so."""
    note("runs", request.node.nodeid)
    judge.equal(engine.echo(3), 3, "echo")


@pytest.mark.advanced_model
@claim("connector.small.fails", source="the toy")
def test_fails(engine, judge, request):
    """It says what it is not told."""
    note("runs", request.node.nodeid)
    judge.equal(engine.echo(1), 2, "echo")


@pytest.mark.full_model
@claim("connector.small.hangs", source="the toy")
def test_hangs(engine, judge, request):
    """It never ends."""
    note("runs", request.node.nodeid)
    hang()
'''

LANE = """
[[lane]]
name = "{name}"
title = "{name}"
marks = "cpu and {mark}"
suites = ["small"]
environments = ["own"]
platform = "cpu"
schedules = ["{schedule}"]
shards = {shards}
minutes = 2
"""

ENGINE = """
["connector/{name}"]
factory = "toy:{factory}"
summary = "says what it is told"
reference = true
package = "pluggy"
tested = []
environment = ""

["connector/{name}".profiles.cpu]
device = "cpu"

["connector/{name}".capabilities]
{capabilities}
"""


def make(root: Path) -> Path:
    """Lay it out below `root`. Lanes: `dies` (6 tests in 2 shards), `fails` (2) and `hangs` (2), one shard each."""
    ignored = shutil.ignore_patterns("__pycache__", "results", "findings")
    for name in ("ci", "harness"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("markers.py", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    shutil.copy(ROOT / "tests/plugin/toy_engine.py", root / "toy.py")
    (root / "conftest.py").write_text('"""Hands pytest to the plugin."""\n\npytest_plugins = ["harness.pytest_plugin"]\n')
    (root / "suites/connector").mkdir(parents=True)
    (root / "suites/connector/test_small.py").write_text(f'"""Small."""\n{SUITE}')
    lanes = [("dies", "core_model", "pull_request", 2), ("fails", "advanced_model", "nightly", 1), ("hangs", "full_model", "weekly", 1)]
    keys = ("name", "mark", "schedule", "shards")
    (root / "ci/lanes.toml").write_text("".join(LANE.format(**dict(zip(keys, lane, strict=True))) for lane in lanes))
    capabilities = "\n".join(f'{member.value} = "full"' for member in ConnectorCap)
    engines = [ENGINE.format(name=name, factory=name.capitalize(), capabilities=capabilities) for name in ("toy", "other")]
    (root / "harness/engines.toml").write_text("".join(engines))
    (root / "ci/known_failures.toml").write_text("")
    os.mkfifo(root / "bell")
    return root


def runs(root: Path) -> list[str]:
    """The tests that were started, by their node ids, in order."""
    path = root / "runs"
    return path.read_text().splitlines() if path.exists() else []
