"""Items from syntax trees: the same as pytest's, and an error for whatever cannot be read without being run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import markers
from ci.collect import collect, main
from ci.lanes import ROOT
from harness.core.registry import builtin_specs
from tests.ci.small_trees import TEST, Tree, small_tree

DUMP = """
import json, pathlib
def pytest_collection_finish(session):
    items = [[i.nodeid, sorted({mark.name for mark in i.iter_markers()}), "build_engine" in i.fixturenames] for i in session.items]
    pathlib.Path(__file__).with_name("items.json").write_text(json.dumps(items))
"""

PLUGIN = """
import pytest

@pytest.fixture
def carrier(engine): ...

@pytest.fixture(scope="session")
def of_session(): ...

@pytest.fixture
def carrier_of_plugin(of_session, carrier): ...
"""

WATCH = """
import sys
compiled = []
sys.addaudithook(lambda event, told: compiled.append(str(told[1])) if event == "compile" else None)
from ci.collect import collect
items = collect()
suites = [name for name in compiled if name.startswith(("suites/", "fixtures/", "conftest.py"))]
print(len(items), len(suites), len(set(suites)))
print(*sorted({"torch", "numpy", "suites", "fixtures", "conftest"} & set(sys.modules)))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return small_tree(tmp_path)


def python(*arguments: str, path: Path = ROOT, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{path}", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=variables, text=True, capture_output=True, timeout=600, check=False)


def test_items_are_those_that_pytest_collects(tmp_path):
    """Names, marks, order and who builds an engine of its own, on every engine and with the long drawings."""
    (tmp_path / "dump_items.py").write_text(DUMP)
    engines = [argument for spec in builtin_specs() for argument in ("--engine", spec.name)]
    options = ["-p", "no:cacheprovider", "-p", "dump_items", "--collect-only", "-q", "-m", "cpu or slow or soak"]
    ran = python("-m", "pytest", "suites", *options, *engines, path=tmp_path)
    items = collect()

    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert json.loads((tmp_path / "items.json").read_text()) == [[item.nodeid, sorted(item.marks), item.builds] for item in items]
    assert {item.kind for item in items} == set(markers.KINDS)


def test_nothing_is_imported_and_no_file_is_read_twice():
    """Neither torch nor a suite: a CI system's small machine can do it."""
    ran = python("-c", WATCH)
    counts, imported = ran.stdout.splitlines()
    items, parsed, files = map(int, counts.split())

    assert ran.returncode == 0, ran.stderr
    assert items == len(collect())
    assert parsed == files > 50
    assert imported == ""


def test_an_item(tree):
    """Its share of the file's time, its suite, its marks, and what it asks for."""
    first, second, card, _ = collect(tree.root)

    assert [first.nodeid, second.nodeid, card.boot] == [
        f"{TEST}::test_first[connector/a@cpu]",
        f"{TEST}::test_second[connector/a@cpu]",
        "connector/a@gpu",
    ]
    assert (first.where, first.claim, first.group) == (f"{TEST}:11", "connector.small.first", "connector.small")
    assert (first.seconds, first.suite, card.seconds, card.suite) == (2.0, "small", 5.0, "small-h100")
    assert (first.builds, second.builds, second.requires) == (False, True, ("readers",))
    assert first.marks == {"cpu", "connector", "core_model"}
    assert card.marks == {"slow", "gpu", "cuda", "H100", "cards_1", "connector"}


ODD = '''
import pytest as pt
from harness.core.claims import claim
import markers as m
m.register_ci(est_time=1, suite="small")

@pt.fixture(name="own")
def _own(carrier): ...

@pt.fixture
def carrier(carrier, fresh_engine): ...

class TestAll:
    pytestmark = [pt.mark.soak]

    @pt.fixture(autouse=True)
    def always(self, blueprint): ...

    @pt.mark.timeout(9)
    @claim("connector.small.a", source="a test")
    def test_a(self):
        """One."""

@claim("connector.small.b", source="a test")
def test_b(own, *, unused=None):
    """Two."""

@pt.mark.usefixtures("carrier")
@claim("connector.small.c", source="a test")
def test_c():
    """Three."""

@claim("connector.small.d", source="a test")
def test_d(judge, *, carrier_of_plugin):
    """Four."""
'''


def test_engines_through_fixtures(tree):
    """Of a plugin, the file and its class; used by every test, under another name, in place of another (for a plugin's fixtures, too)."""
    tree.write(TEST, ODD)
    tree.write("fixtures/own.py", PLUGIN)
    tree.write("harness/engines.toml", (ROOT / "harness" / "engines.toml").read_text())
    (tree.root / "dump_items.py").write_text(DUMP)
    engines = [f"--engine={spec.name}" for spec in builtin_specs()]
    options = ["--import-mode=importlib", "-p", "dump_items", "--collect-only", "-q", "-m", "cpu or slow or soak"]
    ran = python("-m", "pytest", "suites", *options, *engines, path=tree.root, cwd=tree.root)
    items = collect(tree.root)

    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert json.loads((tree.root / "items.json").read_text()) == [[item.nodeid, sorted(item.marks), item.builds] for item in items]
    assert {item.nodeid.partition("::")[2].partition("[")[0]: item.builds for item in items} == {
        "TestAll::test_a": False,
        "test_b": True,
        "test_c": True,
        "test_d": True,
    }


def test_cards_of_a_test_stand_in_place_of_its_engines(tree):
    """Marks of the file: it runs in profiles of that platform only, on the cards that it says."""
    tree.edit(
        TEST,
        'register_ci(est_time=4, suite="small")',
        'pytestmark = [pytest.mark.benchmark, *hardware_marks(res={"cuda": "H200"}, num_cards=4)]',
    )
    items = collect(tree.root)

    assert {item.boot for item in items} == {"connector/a@gpu"}
    assert items[0].marks == {"benchmark", "slow", "gpu", "cuda", "H200", "cards_4", "connector"}


def test_the_command_prints_a_row_a_test(tree, capsys):
    """Its name, its lanes, its seconds; and how many there are."""
    status = main([], tree.root)

    assert status == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{TEST}::test_first[connector/a@cpu]  small  2.0",
        f"{TEST}::test_second[connector/a@cpu]  small  2.0",
        f"{TEST}::test_first[connector/a@gpu]  small-h100  5.0",
        f"{TEST}::test_second[connector/a@gpu]  small-h100  5.0",
        "4 tests, 2 lanes",
    ]


def test_the_command_prints_one_lane(tree, capsys):
    """As text and as JSON."""
    statuses = [main(["--lane", "small"], tree.root), main(["--lane", "small", "--json"], tree.root)]
    text, _, written = capsys.readouterr().out.partition("2 tests, 1 lanes\n")

    assert statuses == [0, 0]
    assert text.count("\n") == 2
    assert [(row["claim"], row["lanes"], row["seconds"]) for row in json.loads(written)] == [
        ("connector.small.first", ["small"], 2.0),
        ("connector.small.second", ["small"], 2.0),
    ]


def test_the_command_tells_every_error(tree, capsys):
    """What is wrong in the suites, each on a line; then what is wrong in the lanes."""
    tree.edit(TEST, "est_time=4", "est_time=-4")
    tree.edit(TEST, "est_time=10", "est_time=0")
    suites = main([], tree.root), capsys.readouterr().err.splitlines()
    small_tree(tree.root).edit("ci/lanes.toml", 'marks = "cpu"', 'marks = "cpu and soak"')
    lanes = main([], tree.root), capsys.readouterr().err.splitlines()

    assert (suites[0], lanes[0]) == (1, 1)
    assert [line.partition(": ")[0] for line in suites[1]] == [f"{TEST}:6", f"{TEST}:7", *[f"{TEST}:11"] * 2, "ci.collect"]
    assert suites[1][-1] == "ci.collect: 4 errors"
    assert len(lanes[1]) == 4


def test_the_command_refuses_a_lane_that_there_is_not(tree, capsys):
    """Wrong use is status 2."""
    status = main(["--lane", "smal"], tree.root)

    assert status == 2
    assert capsys.readouterr().err == "ci.collect: unknown lane 'smal'; nearest: small, small-h100\n"
