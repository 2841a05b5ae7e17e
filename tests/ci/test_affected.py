"""Which lanes a change needs: a planted change for each rule, and what lanes really import."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci.affected import Needs, affected, changed, main
from ci.imports import import_graph, reached
from ci.lanes import ROOT, read_lanes
from ci.sources import SourceError
from tests.ci.small_trees import ENGINES, LANES, SUITE, Tree, small_tree

BOTH = ["small", "small-h100"]
ON_CARDS = """
pytestmark = hardware_marks(res={"cuda": "H100"})
register_cuda_ci(est_time=1, suite="small-h100")


@claim("connector.cards.first", source="a test")
def test_first(engine):
    \"\"\"It is judged on cards.\"\"\"
"""

RUNS = """
import json, os, sys
import fastapi, hypothesis, httpx, pytest, torch, transformers

class Loaded:
    def __init__(self, file): self.file = file
    def pytest_sessionfinish(self, session):
        names = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        open(self.file, "w").write(json.dumps([name for name in names if name and name.endswith(".py")]))

for file, arguments in json.load(sys.stdin).items():
    child = os.fork()
    if not child:
        status = pytest.main([*arguments, "-q", "-p", "no:cacheprovider"], [Loaded(file)])
        sys.stdout.flush()
        os._exit(status)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{file}: pytest failed")
"""
"""Runs pytest once for each file to write, in children that share what they import of others; nothing of ours is imported before."""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """One suite for both lanes and one for cards; an adapter that loads others in every way that there is."""
    tree = small_tree(tmp_path)
    tree.write("ci/lanes.toml", 'no_lane = ["README.md", "tests/*"]\n' + LANES)
    tree.write("suites/connector/test_cards.py", SUITE[: SUITE.index("register_ci(")] + ON_CARDS)
    tree.edit("harness/engines.toml", "harness.transfer.engines.memory:MemoryConnectorEngine", "harness.adapter:Adapter")
    tree.write("harness/__init__.py", "")
    tree.write("harness/adapter.py", "from harness.package.inner import thing\ndef build():\n    import harness.late\n")
    tree.write("harness/package/__init__.py", "")
    tree.write("harness/package/inner.py", "from . import beside\nfrom ..above import thing\n")
    tree.write("harness/package/beside.py", "")
    tree.write("harness/above.py", "")
    tree.write(
        "harness/late.py", "from importlib import import_module\nTOLD = 'harness.told:thing'\nimport_module(f'harness.{kind}.of_kind')\n"
    )
    tree.write("harness/told.py", "")
    tree.write("harness/a/of_kind.py", "import harness.unknown\n")
    tree.write("harness/b/of_kind.py", "")
    tree.write("harness/b/faults.py", "")
    tree.write("suites/connector/words.py", "")
    tree.edit("suites/connector/test_cards.py", "import pytest\n", "import pytest\nimport suites.connector.words\n")
    tree.write("fixtures/own.py", "import pytest\nimport fixtures.more\n\n\n@pytest.fixture\ndef carrier(engine):\n    pass\n")
    tree.write("fixtures/more.py", "")
    return tree


@pytest.mark.parametrize(
    ("file", "lanes"),
    [
        ("suites/connector/test_small.py", BOTH),
        ("suites/connector/test_cards.py", ["small-h100"]),
        ("suites/connector/words.py", ["small-h100"]),
        ("conftest.py", BOTH),
        ("fixtures/own.py", BOTH),
        ("fixtures/more.py", BOTH),
        ("harness/adapter.py", BOTH),
        ("harness/__init__.py", BOTH),
        ("harness/package/__init__.py", BOTH),
        ("harness/package/inner.py", BOTH),
        ("harness/package/beside.py", BOTH),
        ("harness/above.py", BOTH),
        ("harness/late.py", BOTH),
        ("harness/told.py", BOTH),
        ("harness/a/of_kind.py", BOTH),
        ("harness/b/of_kind.py", BOTH),
        ("harness/b/faults.py", []),
        ("harness/nobody.py", BOTH),
        ("tests/test_x.py", []),
        ("README.md", []),
        ("harness/engines.toml", BOTH),
        ("ci/run.py", BOTH),
        ("ci/engines/vllm.txt", []),
        ("fixtures/data/weights.bin", BOTH),
    ],
)
def test_a_changed_file(tree, file, lanes):
    """Of each sort; `harness/nobody.py` is not there, as one that was deleted."""
    assert affected([file], tree.root) == lanes


def test_a_file_that_nothing_leads_to(tree):
    """A new one that is not imported yet needs no lane; once it is, it needs those of whoever does."""
    tree.write("harness/nobody.py", "")
    before = affected(["harness/nobody.py"], tree.root)
    tree.write("suites/connector/words.py", "import harness.nobody\n")

    assert before == []
    assert affected(["harness/nobody.py"], tree.root) == ["small-h100"]


def test_an_engine_that_is_named(tree):
    """Leads to its factory, whether the lane judges it or not."""
    tree.write("harness/engines.toml", ENGINES + ENGINES.replace("connector/a", "connector/b").replace("transfer.engines.memory", "other"))
    tree.write("harness/other.py", "")
    tree.write("fixtures/more.py", "NAMED = 'connector/b'\n")
    graph = import_graph(tree.root)

    assert "harness/other.py" in reached(graph, ["conftest.py"])
    assert "harness/other.py" not in reached(graph, ["suites/connector/test_small.py"])


def test_several_changes(tree):
    """Need what each of them needs, in the order of the lanes; none needs none."""
    assert affected(["harness/told.py", "suites/connector/test_cards.py", "README.md"], tree.root) == BOTH
    assert affected([], tree.root) == []


def test_a_file_that_is_no_python(tree):
    """The error names it: an import of it cannot be followed."""
    tree.write("fixtures/more.py", "def (")

    with pytest.raises(SourceError, match=r"fixtures/more.py:1: no Python file"):
        affected(["README.md"], tree.root)


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, timeout=60)


def test_what_git_says_has_changed(tree):
    """Changed, staged, new, deleted, and both names of what was renamed; names are as they are, and ignored files are none."""
    tree.write(".gitignore", "*.log\n")
    git(tree.root, "init", "-q")
    git(tree.root, "add", "-A")
    git(tree.root, "commit", "-qm", "first")
    unchanged = changed("HEAD", tree.root)
    tree.write("harness/told.py", "x = 1\n")
    tree.write("new ünd odd.txt", "")
    tree.write("a.log", "")
    (tree.root / "harness/b/of_kind.py").unlink()
    git(tree.root, "mv", "fixtures/more.py", "fixtures/moved.py")

    assert unchanged == []
    assert changed("HEAD", tree.root) == [
        "fixtures/more.py",
        "fixtures/moved.py",
        "harness/b/of_kind.py",
        "harness/told.py",
        "new ünd odd.txt",
    ]


def test_the_command(tree, capsys, monkeypatch):
    """A name a line, or one JSON list; files as arguments, on stdin, or since a revision."""
    git(tree.root, "init", "-q")
    git(tree.root, "add", "-A")
    git(tree.root, "commit", "-qm", "first")
    tree.write("suites/connector/words.py", "x = 1\n")
    statuses = [main(["conftest.py"], tree.root), main(["README.md"], tree.root), main(["--base", "HEAD", "--json"], tree.root)]
    monkeypatch.setattr(sys, "stdin", io.StringIO("suites/connector/words.py\nREADME.md\n"))
    statuses.append(main([], tree.root))

    assert statuses == [0, 0, 0, 0]
    assert capsys.readouterr().out == 'small\nsmall-h100\n["small-h100"]\nsmall-h100\n'


def test_wrong_use(tree, capsys):
    """A revision that there is not, none but an option, and both ways at once: status 2. A tree that is wrong: 1."""
    git(tree.root, "init", "-q")
    statuses = [main(["--base", "nothing"], tree.root), main(["--base=--all"], tree.root)]
    with pytest.raises(SystemExit) as both:
        main(["--base", "HEAD", "README.md"], tree.root)
    tree.edit("ci/lanes.toml", 'marks = "slow"', 'marks = "slo"')
    wrong = main(["README.md"], tree.root)

    assert (statuses, both.value.code, wrong) == ([2, 2], 2, 1)
    assert "there is no commit 'nothing' here; fetch it, or name another" in capsys.readouterr().err


@pytest.fixture(scope="module")
def needs() -> Needs:
    """What the committed lanes need."""
    return Needs()


def test_an_environment_needs_its_lanes(needs):
    """The file of ci/engines; and requirements.lock, which is nobody's alone, all."""
    moshi = {lane.name for lane in needs.lanes if "moshi" in lane.environments}

    assert needs.lanes_of("ci/engines/moshi.txt") == moshi != set()
    assert needs.lanes_of("requirements.lock") == {lane.name for lane in needs.lanes}


def test_an_engine_needs_the_lanes_that_judge_it(needs):
    """An adapter, and not those of others; what is planted for a proof alone, no lane."""
    assert needs.lanes_of("harness/transfer/engines/mooncake.py") == {"mooncake"}
    assert "cpu" not in needs.lanes_of("harness/duplex/engines/moshi.py")
    assert needs.lanes_of("harness/duplex/faults/rows.py") == set()


@pytest.fixture(scope="module")
def loaded(needs, tmp_path_factory) -> dict[str, set[str]]:
    """Lane to the files of the checkout that the collection of its own tests on its own engines loads; and `run`, to those of a run."""
    folder, runs = tmp_path_factory.mktemp("loaded"), {}
    for lane in needs.lanes:
        items = [item for own in needs.taken[lane.name].values() for item in own]
        modules, engines = dict.fromkeys(item.module for item in items), dict.fromkeys(item.engine for item in items)
        runs[lane.name] = [*modules, "--collect-only", "-m", lane.marks, *(f"--engine={engine}" for engine in engines)]
    suites = ["suites/transfer/test_role.py", "suites/tier/test_http.py", "suites/duplex/test_rows.py"]
    runs["run"] = [*suites, "-m", "cpu", "--engine=transfer/reference", "--engine=tier/reference-http", "--engine=duplex/reference"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    given = json.dumps({str(folder / f"{name}.json"): arguments for name, arguments in runs.items()})
    ran = subprocess.run(
        [sys.executable, "-c", RUNS], cwd=ROOT, env=environment, input=given, text=True, capture_output=True, timeout=900, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    found = {name: [Path(file) for file in json.loads((folder / f"{name}.json").read_text())] for name in runs}
    return {name: {file.relative_to(ROOT).as_posix() for file in files if file.is_relative_to(ROOT)} for name, files in found.items()}


@pytest.mark.parametrize("lane", [lane.name for lane in read_lanes()])
def test_what_a_lane_imports_selects_it(needs, loaded, lane):
    """Every file of the checkout that its collection has loaded."""
    suites = {item.module for own in needs.taken[lane].values() for item in own}

    assert {"conftest.py", "markers.py", "harness/pytest_plugin/routing.py", *suites} <= loaded[lane]
    assert {file for file in loaded[lane] if lane not in needs.lanes_of(file)} == set()
    assert loaded[lane] - reached(needs.graph, suites) > {"conftest.py"}, "suites alone lead to all of it: this would see no missing edge"


def test_what_a_run_imports_selects_its_lane(needs, loaded):
    """The same where tests have run, on an engine of each kind."""
    assert {"harness/duplex/reference/engine.py", "harness/tier/engines/served.py"} <= loaded["run"] - loaded["mooncake"]
    assert {file for file in loaded["run"] if "cpu" not in needs.lanes_of(file)} == set()
