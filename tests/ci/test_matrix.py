"""The files that CI systems read: written from the lanes, never stale, and each job in them once."""

import dataclasses
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ci import buildkite, github, matrix
from ci.jobs import MARGIN, jobs_of
from ci.lanes import LANES_TOML, ROOT, SCHEDULES, Lane, find_lane, read_lanes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LANES = read_lanes()
FILES = matrix.files(LANES)
CPU = find_lane("cpu", LANES)
CARDS = find_lane("omni-h100", LANES)


@cache
def load(path: str) -> dict:
    return YAML(typ="safe").load(FILES[path])


def expected(schedule: str | None) -> Counter[tuple[str, str, int]]:
    """Lane, environment and shard of every job of the schedule, as lanes.toml has them; None is all of them."""
    tables = tomllib.loads(LANES_TOML.read_text(encoding="utf-8"))["lane"]
    taken = [table for table in tables if schedule is None or schedule in table["schedules"]]
    return Counter((t["name"], environment, shard + 1) for t in taken for environment in t["environments"] for shard in range(t["shards"]))


def called(workflow: str) -> list[dict]:
    """What the workflow hands to the common one, a lane each."""
    return [job["with"] for job in load(f"{github.FOLDER}/{workflow}.yml")["jobs"].values() if "with" in job]


def jobs_on_github(workflow: str) -> Counter[tuple[str, str, int]]:
    include = [(given["lane"], job) for given in called(workflow) for job in json.loads(given["matrix"])["include"]]
    return Counter((lane, job["environment"], job["shard"]) for lane, job in include)


def jobs_on_buildkite(lanes: list[str]) -> Counter[tuple[str, str, int]]:
    steps = [step for lane in lanes for step in load(f"{buildkite.LANES_FOLDER}/{lane}.yml")["steps"][0]["steps"]]
    variables = [step["env"] for step in steps if "SHARD" in step["env"]]
    return Counter((env["LANE"], env["ENVIRONMENT"], int(env["SHARD"])) for env in variables)


@pytest.fixture
def upload(tmp_path):
    """Runs the pipeline's first step in a folder that has its files; gives its exit status, and the lanes that were uploaded.

    The agent, git and the reader of suites write down what they were asked: each is another system's, or has tests of its own.
    """
    matrix.write(tmp_path, FILES)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    scripts = {
        "buildkite-agent": 'echo "$4" >> uploaded',
        "git": 'if [[ $1 == fetch ]]; then printf "%s\\n" "$@" > fetched; else echo 0123abc; fi',
        "python3.11": "mkdir -p build/reader/bin && cp bin/reader build/reader/bin/python",
        "reader": 'if [[ "$*" == "-m ci.affected --base 0123abc" ]]; then printf "soak\\ncpu\\n"; fi',
    }
    for name, text in scripts.items():
        (bin_ / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (bin_ / name).chmod(0o755)

    def run(**variables: str) -> tuple[int, list[str]]:
        env = {"PATH": f"{bin_}:{os.environ['PATH']}", **variables}
        done = subprocess.run(["bash", buildkite.UPLOAD], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        uploaded = tmp_path / "uploaded"
        return done.returncode, [Path(line).stem for line in uploaded.read_text().splitlines()] if uploaded.exists() else []

    return run


def changed(lane: Lane, **values: object) -> list[Lane]:
    return [dataclasses.replace(other, **values) if other is lane else other for other in LANES]


def test_what_is_committed_is_not_stale(capsys):
    assert matrix.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("values", "there"),
    [
        ({"minutes": 31}, {".github/workflows/merge.yml", ".github/workflows/pull_request.yml", ".buildkite/lanes/cpu.yml"}),
        ({"shards": 3}, {".github/workflows/merge.yml", ".github/workflows/pull_request.yml", ".buildkite/lanes/cpu.yml"}),
        ({"schedules": ("merge",)}, {".github/workflows/pull_request.yml", ".buildkite/upload.sh"}),
        ({"name": "cpus"}, {".buildkite/lanes/cpu.yml", ".buildkite/lanes/cpus.yml", ".github/workflows/merge.yml"}),
    ],
)
def test_a_changed_lane_makes_its_files_stale(values, there):
    stale = set(matrix.stale(ROOT, matrix.files(changed(CPU, **values))))

    assert there <= stale
    assert not {".buildkite/lanes/soak.yml", ".github/workflows/weekly.yml", ".github/workflows/lane.yml"} & stale


def test_the_command_writes_then_finds_nothing_stale(tmp_path, capsys):
    assert matrix.main(["--check"], tmp_path) == 1
    assert ".github/workflows/lane.yml: stale; run python -m ci.matrix" in capsys.readouterr().out.splitlines()

    assert matrix.main([], tmp_path) == 0
    assert matrix.main(["--check"], tmp_path) == 0
    assert {path for path in FILES if (tmp_path / path).read_text() == FILES[path]} == set(FILES)


def test_what_a_lane_that_is_gone_left_behind_is_removed_and_what_we_did_not_write_stays(tmp_path):
    theirs, ours = tmp_path / ".github/workflows/pages.yml", ".buildkite/lanes/cpu.yml"
    matrix.write(tmp_path, FILES)
    theirs.write_text("name: Pages\n")
    without = matrix.files([lane for lane in LANES if lane is not CPU])
    assert ours in matrix.stale(tmp_path, without)

    matrix.write(tmp_path, without)
    assert not (tmp_path / ours).exists()
    assert theirs.exists()
    assert matrix.stale(tmp_path, without) == []


def test_lanes_that_are_written_wrongly_are_refused_by_name(tmp_path, capsys):
    wrong = tmp_path / "lanes.toml"
    wrong.write_text('[[lane]]\nname = "cpu"\n')

    assert matrix.main([], tmp_path, wrong) == 2
    assert f"{wrong}: lane 1 (cpu)" in capsys.readouterr().err


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_job_of_a_schedule_is_on_github_once(schedule):
    assert jobs_on_github(schedule) == expected(schedule)


def test_each_job_can_be_started_by_hand_on_github():
    assert jobs_on_github("manual") == expected(None)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_job_of_a_schedule_is_on_buildkite_once(upload, schedule):
    status, lanes = upload(ASSAY_SCHEDULE=schedule, BUILDKITE_PULL_REQUEST_BASE_BRANCH="main")

    assert status == 0
    assert jobs_on_buildkite(lanes) == expected(schedule)


def test_a_shard_that_is_missing_is_seen():
    without = jobs_on_github("merge") - Counter([("cpu", "own", 2)])

    assert without != expected("merge")


def test_a_build_of_buildkite_is_of_a_merge_or_of_a_pull_request(upload, tmp_path):
    assert upload(BUILDKITE_PULL_REQUEST="false") == (0, ["cpu"])
    assert not (tmp_path / "fetched").exists()

    (tmp_path / "uploaded").unlink()
    assert upload(BUILDKITE_PULL_REQUEST="7", BUILDKITE_PULL_REQUEST_BASE_BRANCH="$(id)") == (0, ["cpu"])
    assert (tmp_path / "fetched").read_text().splitlines()[-1] == "+refs/heads/$(id):refs/remotes/origin/assay-base"


def test_a_pull_request_gets_the_lanes_alone_that_it_reaches(upload, tmp_path):
    (tmp_path / "bin/reader").write_text("#!/usr/bin/env bash\nif [[ $2 == ci.affected ]]; then echo soak; fi\n")

    assert upload(BUILDKITE_PULL_REQUEST="7", BUILDKITE_PULL_REQUEST_BASE_BRANCH="main") == (0, [])


def test_a_reader_that_fails_fails_the_build(upload, tmp_path):
    (tmp_path / "bin/reader").write_text("#!/usr/bin/env bash\nexit 3\n")

    assert upload(BUILDKITE_PULL_REQUEST="7", BUILDKITE_PULL_REQUEST_BASE_BRANCH="main") == (3, [])


@pytest.mark.parametrize(
    ("variables", "answer"),
    [
        ({"ASSAY_LANE": "omni-h100"}, (0, ["omni-h100"])),
        ({"ASSAY_LANE": "omni"}, (2, [])),
        ({"ASSAY_LANE": "../pipeline"}, (2, [])),
        ({"ASSAY_SCHEDULE": "daily"}, (2, [])),
    ],
)
def test_a_build_by_hand_is_of_a_lane_that_there_is(upload, variables, answer):
    assert upload(**variables) == answer


def test_a_lane_of_cards_asks_for_machines_that_have_them():
    given = next(given for given in called("weekly") if given["lane"] == CARDS.name)
    steps = load(f"{buildkite.LANES_FOLDER}/{CARDS.name}.yml")["steps"][0]["steps"]

    assert json.loads(given["runs-on"]) == ["self-hosted", "gpu", "h100", "cards-1"]
    assert [step["agents"]["queue"] for step in steps] == ["gpu-h100-cards-1", "cpu"]
    assert given["platform"] == steps[0]["env"]["PLATFORM"] == "cuda"


def test_a_lane_of_more_cards_asks_for_other_machines():
    four = dataclasses.replace(CARDS, card_class="H200", cards=4)

    assert github.runs_on(four) == ["self-hosted", "gpu", "h200", "cards-4"]
    assert buildkite.queue(four) == "gpu-h200-cards-4"


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_a_lane_keeps_its_limit_and_its_packages(lane):
    given = next(given for given in called("manual") if given["lane"] == lane.name)
    *shards, judge = load(f"{buildkite.LANES_FOLDER}/{lane.name}.yml")["steps"][0]["steps"]

    assert given["minutes"] == lane.minutes + MARGIN
    assert {step["timeout_in_minutes"] for step in shards} == {lane.minutes + MARGIN}
    assert given["packages"].split() == list(lane.packages)
    assert {"apt-get install" in step["command"] for step in shards} == {bool(lane.packages)}
    assert [step["step"] for step in judge["depends_on"]] == [step["key"] for step in shards]


def test_a_job_has_a_name_that_no_other_has():
    names = Counter(job.name for lane in LANES for job in jobs_of(lane))

    assert set(names.values()) == {1}
