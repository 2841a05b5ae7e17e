"""The `assay` command: complete, valid JSON, and errors without a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import __main__ as cli
from harness.core.claims import read_claims
from harness.core.faults import all_faults
from harness.core.registry import builtin_specs

ROOT = Path(__file__).parents[2]


def rows(capsys, *argv):
    """What `assay ... --json` prints, read back."""
    assert cli.main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_engines_are_all_there(capsys):
    """In the order of engines.toml, each with all its profiles, options and capabilities."""
    specs, found = builtin_specs(), rows(capsys, "engines")

    assert [r["name"] for r in found][: len(specs)] == [s.name for s in specs]
    for spec, row in zip(specs, found, strict=False):
        assert (set(row["profiles"]), set(row["options"])) == (set(spec.profiles), set(spec.options))
        assert {n: c["support"] for n, c in row["capabilities"].items()} == {n: c.support.value for n, c in spec.capabilities.items()}


def test_claims_are_all_there(capsys):
    """Each with its sentence, source and place."""
    found = rows(capsys, "claims")

    assert [r["id"] for r in found] == [c.id for c in read_claims([ROOT / "suites"])]
    assert all(r["sentence"] and r["source"] and r["where"] for r in found)


def test_faults_are_all_there(capsys):
    """Each with its role, sentence and seam."""
    found = rows(capsys, "faults")

    assert [r["name"] for r in found] == [f.name for f in all_faults()]
    assert all(r["sentence"] and r["seam"] for r in found)


@pytest.mark.parametrize(("command", "title", "names"), [("engines", "Engines", builtin_specs), ("faults", "Faults", all_faults)])
def test_tables(capsys, command, title, names):
    """Without --json, a table with the same rows."""
    assert cli.main([command]) == 0

    out = capsys.readouterr().out
    assert out.startswith(title)
    assert [n.name for n in names() if n.name not in out] == []


def test_the_table_of_claims(capsys):
    """Ids are not cut."""
    assert cli.main(["claims"]) == 0

    out = capsys.readouterr().out
    assert out.startswith("Claims")
    assert [c.id for c in read_claims([ROOT / "suites"]) if c.id not in out] == []


ADAPTER = """
from harness.core.capabilities import ConnectorCap


class Adapter:
    spec = {"name": "connector/mine", "profiles": {"cpu": {}}, "capabilities": dict.fromkeys((m.value for m in ConnectorCap), "full")}
    available = staticmethod(lambda: "not today")
    build = staticmethod(lambda config, clock: None)
"""


def test_an_adapter_of_ones_own(capsys, tmp_path, monkeypatch):
    """Stands behind the built-in engines, with its own word on being available."""
    (tmp_path / "cli_adapter.py").write_text(ADAPTER)
    monkeypatch.syspath_prepend(tmp_path)

    mine = rows(capsys, "engines", "--adapter", "cli_adapter:Adapter")[-1]
    assert (mine["name"], mine["profiles"]) == ("connector/mine", {"cpu": "not today"})
    sys.modules.pop("cli_adapter")


def test_an_adapter_that_does_not_exist(capsys):
    """Status 2, one line, no traceback; nothing on the standard output."""
    assert cli.main(["engines", "--adapter", "nowhere:Adapter"]) == 2

    out, err = capsys.readouterr()
    assert (out, err) == ("", "assay: --adapter 'nowhere:Adapter': cannot import nowhere: No module named 'nowhere'\n")


def test_a_suite_with_a_wrong_claim(capsys, tmp_path, monkeypatch):
    """The place is named."""
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    monkeypatch.setattr(cli, "SUITES", tmp_path)

    assert cli.main(["claims"]) == 2
    assert capsys.readouterr().err == f"assay: {tmp_path}/test_it.py:1: test_it carries 0 @claim; write exactly one\n"


@pytest.mark.parametrize("argv", [[], ["engine"], ["claims", "--adapter", "x:y"], ["engines", "more"]])
def test_wrong_usage(capsys, argv):
    """argparse says what there is."""
    with pytest.raises(SystemExit) as left:
        cli.main(argv)

    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("usage: assay")


def test_as_a_module():
    """`python -m harness` is the same command, with its status."""
    done = subprocess.run(
        [sys.executable, "-m", "harness", "engines", "--adapter", "x"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (2, "", "assay: --adapter 'x': write module:attr\n")
