"""What shards say together, judged from a recorded run: every step is taken, and one that fails fails the whole."""

import re
import shutil
from pathlib import Path

import pytest

from ci import judge, local
from ci.lanes import ROOT, find_lane, read_lanes

RECORD = ROOT / "ci" / "results" / "transfer-h200.jsonl"
LANE = "transfer-h100"


def steps(told: str) -> list[str]:
    """The modules that were run."""
    return re.findall(r"^\+ python -m (\S+)", told, re.MULTILINE)


@pytest.fixture
def merged(tmp_path) -> Path:
    """A lane's run as it lies after merging."""
    folder = tmp_path / "merged"
    folder.mkdir()
    shutil.copy(RECORD, folder / f"{LANE}-own.jsonl")
    return folder


def test_a_run_is_counted_and_reported(merged, tmp_path, capfd):
    assert judge.main(["--lane", LANE, "--merged", str(merged), "--out", str(tmp_path)]) == 0
    assert steps(capfd.readouterr().out) == ["ci.least", "ci.known", "harness"]
    assert (tmp_path / LANE / "report" / "index.html").is_file()


def test_a_run_that_lacks_verdicts_fails_and_is_reported_all_the_same(merged, tmp_path, capfd):
    log = merged / f"{LANE}-own.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "test_payload.py" not in line))

    assert judge.main(["--lane", LANE, "--merged", str(merged), "--out", str(tmp_path)]) == 1
    assert "LESS" in capfd.readouterr().out
    assert (tmp_path / LANE / "report" / "index.html").is_file()


def test_an_environment_that_left_nothing_fails_the_lane(merged, tmp_path, capfd):
    shutil.copy(RECORD, merged / "engines-moshi.jsonl")

    assert judge.main(["--lane", "engines", "--merged", str(merged), "--out", str(tmp_path)]) == 1
    assert steps(capfd.readouterr().out) == [*["ci.least"] * 5, "ci.known", "harness"]


def test_a_shard_that_was_not_merged_whole_is_wanting(tmp_path, capfd):
    """Here one whose JUnit file is missing."""
    folder = tmp_path / LANE / "own"
    folder.mkdir(parents=True)
    shutil.copy(RECORD, folder / f"{LANE}-own-1.jsonl")

    assert not judge.merge(find_lane(LANE, read_lanes()), tmp_path, tmp_path / "out")
    assert "no attempt is complete" in capfd.readouterr().err


def test_where_there_are_no_results_that_is_said(tmp_path, capfd):
    assert judge.main(["--lane", LANE, "--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 1

    told = capfd.readouterr()
    assert steps(told.out) == ["ci.merge"]
    assert f"holds no {LANE}-*.jsonl" in told.err


@pytest.mark.parametrize("command", [judge.main, local.main])
def test_an_unknown_lane_is_refused_with_those_there_are(command, capsys):
    assert command(["--lane", "transfer-h10"]) == 2
    assert "transfer-h100" in capsys.readouterr().err


def test_results_of_another_run_are_not_mixed_in(tmp_path, capsys):
    (tmp_path / "old.jsonl").touch()

    assert local.main(["--lane", "cpu", "--out", str(tmp_path)]) == 2
    assert f"--out {tmp_path}: is not empty; name another folder" in capsys.readouterr().err


def test_a_lane_runs_here_from_its_tests_to_its_report(tmp_path, capfd):
    """One test of the lane: so it passes, and the lane reaches too little."""
    status = local.main(["--lane", "cpu", "--out", str(tmp_path), "--", "-k", "test_layer_order and reference", "-p", "no:cacheprovider"])

    told = capfd.readouterr().out
    assert status == 1
    assert "1 passed" in told
    assert steps(told) == ["ci.merge", "ci.least", "ci.known", "harness"]
    assert "LESS  transfer/reference@cpu" in told
    assert "PASS" in (tmp_path / "cpu-own.jsonl").read_text()
