"""One command runs a shard: what the shards of a lane record together is what the lane records whole, and nothing outlives its deadline."""

import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ci.lanes import ROOT
from ci.run import _end, command, main, run
from ci.shard import shares
from harness.core.verdict import Verdict
from harness.report.runs import read_run

LANES = "".join(
    f"""
[[lane]]
name = "{name}"
title = "{name}"
marks = "cpu and connector"
suites = ["connector"]
environments = {environments}
platform = "cpu"
schedules = ["{schedule}"]
shards = 2
minutes = 10
"""
    for name, environments, schedule in (
        ("carriers", '["own"]', "merge"),
        ("released", '["mooncake", "vllm-omni"]', "nightly"),
    )
)
SUITES = ("test_connector_endpoints.py", "test_connector_store.py")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A checkout with two real suites and lanes of its own."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("harness", "fixtures", "conftest.py", "markers.py", "pyproject.toml"):
        (root / name).symlink_to(ROOT / name)
    (root / "suites/transfer").mkdir(parents=True)
    for name in SUITES:
        shutil.copy(ROOT / "suites/transfer" / name, root / "suites/transfer")
    (root / "ci").mkdir()
    (root / "ci/known_failures.toml").write_text("")
    (root / "ci/lanes.toml").write_text(LANES)
    return root


@pytest.fixture(scope="module")
def ran(root):
    """The lane whole, and in two shards."""
    for out, shard in (("whole", "1/1"), ("shards", "1/2"), ("shards", "2/2")):
        assert main(["--lane", "carriers", "--shard", shard, "--out", str(root / out), "--", "-q"], root) == 0
    return root


def verdicts(*logs: Path) -> list[tuple[str, Verdict]]:
    return sorted((result.test, result.verdict) for log in logs for result in read_run(log).results)


def test_the_shards_record_together_what_the_lane_records_whole(ran):
    whole = verdicts(ran / "whole/carriers-own-1.jsonl")
    shards = verdicts(ran / "shards/carriers-own-1.jsonl", ran / "shards/carriers-own-2.jsonl")

    assert shards == whole
    assert len(whole) == len(shares("carriers", "own", ran)[0].items)
    assert {Verdict.PASS, Verdict.UNSUPPORTED} <= {verdict for _, verdict in whole}


def test_a_shard_file_that_misses_a_test_is_noticed(ran, tmp_path):
    (share,) = shares("carriers", "own", ran)
    nodeids = (ran / "shards/carriers-own-2.txt").read_text().splitlines()
    (tmp_path / "short.txt").write_text("\n".join(nodeids[1:]))
    status = run(command(share, tmp_path / "short", ["-q"]), 10, ran)
    missing = Counter(verdicts(ran / "whole/carriers-own-1.jsonl"))
    missing.subtract(verdicts(ran / "shards/carriers-own-1.jsonl", tmp_path / "short.jsonl"))

    assert status == 0
    assert [test for (test, _), count in missing.items() if count] == nodeids[:1]


def test_engines_of_another_environment_are_in_no_shard(ran):
    text = "".join(path.read_text() for path in sorted(ran.glob("shards/*.txt")))

    assert "connector/shm@cpu" in text
    assert "mooncake" not in text
    assert "mooncake" not in "".join(command(shares("carriers", "own", ran)[0], Path("files")))


def test_a_dry_run_prints_what_can_be_pasted_and_leaves_records_alone(root, tmp_path, capsys):
    (tmp_path / "carriers-own-2.jsonl").write_text("an earlier run's")
    status = main(["--lane", "carriers", "--shard", "2/2", "--out", str(tmp_path), "--dry-run", "--", "-k", "a or b"], root)
    printed = shlex.split(capsys.readouterr().out)

    assert status == 0
    assert printed == ["cd", str(root), "&&", *command(shares("carriers", "own", root)[0], tmp_path / "carriers-own-2", ["-k", "a or b"])]
    assert (tmp_path / "carriers-own-2.jsonl").read_text() == "an earlier run's"


def test_pytest_gets_the_marks_the_engines_and_the_files(root):
    (share,) = shares("carriers", "own", root)

    assert command(share, Path("/out/x"))[1:] == [
        *("-m", "pytest", "@/out/x.txt", "-m", "cpu and connector"),
        *("--engine", "connector/memory", "--engine", "connector/shm", "--engine", "connector/tcp"),
        *("--junit-xml=/out/x.xml", "--report-log=/out/x.jsonl"),
    ]


def test_an_earlier_run_leaves_no_records_to_a_run_that_breaks(root, tmp_path):
    (tmp_path / "carriers-own-1.jsonl").write_text("an earlier run's")
    status = main(["--lane", "carriers", "--out", str(tmp_path), "--", "--no-such-option"], root)

    assert status == pytest.ExitCode.USAGE_ERROR
    assert not (tmp_path / "carriers-own-1.jsonl").exists()


def test_a_shard_without_tests_is_fine(root, tmp_path, capsys):
    """And leaves no records, not even those of an earlier run."""
    (tmp_path / "carriers-own-9999.jsonl").write_text("of before")
    status = main(["--lane", "carriers", "--shard", "9999/9999", "--out", str(tmp_path)], root)

    assert status == 0
    assert capsys.readouterr().out.startswith("ci.run: carriers-own-9999: shard 9999/9999 has no test")
    assert [path.name for path in tmp_path.glob("carriers-*")] == ["carriers-own-9999.txt"]


def test_records_that_cannot_be_removed_are_named(root, tmp_path, capsys):
    (tmp_path / "carriers-own-1.jsonl").mkdir()

    assert main(["--lane", "carriers", "--out", str(tmp_path)], root) == 2
    assert "carriers-own-1.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lane", "carrier"], "unknown lane 'carrier'; nearest: carriers"),
        (["--lane", "carriers", "--environment", "moshi"], "lane carriers: unknown environment 'moshi'; there are: own"),
        (["--lane", "released"], "lane released has several environments; name one with --environment: mooncake, vllm-omni"),
        (["--lane", "carriers", "--out", "/dev/null/x"], "--out /dev/null/x: "),
    ],
)
def test_what_there_is_not_is_named(root, capsys, arguments, said):
    assert main(arguments, root) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("shard", "status"), [("1/2", 0), ("1/1", 5)])
def test_nothing_judged_is_fine_in_a_shard_of_several_alone(root, tmp_path, capsys, shard, status):
    nothing = main(["--lane", "carriers", "--shard", shard, "--out", str(tmp_path), "--", "-k", "no_such_test", "-q"], root)

    assert nothing == status
    assert ("nothing was judged" in capsys.readouterr().err) == (status == 0)


@pytest.mark.parametrize("status", [0, 1, 5])
def test_the_exit_status_is_that_of_pytest(tmp_path, status):
    assert run([sys.executable, "-c", f"raise SystemExit({status})"], 1, tmp_path) == status


def test_what_does_not_end_is_interrupted_and_then_killed(tmp_path, capsys):
    status = run(["sh", "-c", "trap '' INT; exec sleep 100"], 0.02, tmp_path, grace=0.1)

    assert status == 128 + signal.SIGKILL
    assert capsys.readouterr().err.splitlines() == [
        "ci.run: the lane's 0.02 minutes are over: interrupting pytest",
        "ci.run: it did not end within 0.1 s: killing it",
    ]


def test_what_ends_well_once_interrupted_is_no_success(tmp_path):
    assert run(["sh", "-c", "trap 'exit 0' INT; while :; do sleep 0.1; done"], 0.02, tmp_path, grace=20) == 1


def test_a_pytest_that_is_interrupted_writes_what_it_has(tmp_path):
    """The second test says through a pipe that it has begun, and waits for ever."""
    (tmp_path / "test_it.py").write_text(
        "import threading\nfrom pathlib import Path\n\n\ndef test_ends():\n    pass\n\n\n"
        "def test_hangs():\n    Path('begun').write_text('x')\n    threading.Event().wait()\n"
    )
    subprocess.run(["mkfifo", tmp_path / "begun"], check=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "test_it.py", "--junit-xml=it.xml", "--report-log=it.jsonl"], cwd=tmp_path
    )
    assert (tmp_path / "begun").read_text() == "x"
    status = _end(process, grace=60)

    assert status == pytest.ExitCode.INTERRUPTED
    assert 'name="test_ends"' in (tmp_path / "it.xml").read_text()
