"""Least counts: what a lane commits to, held against recorded runs, whole and changed."""

import functools
import shutil
import subprocess
import sys

import pytest

from ci import least, least_counts
from ci.lanes import read_lanes
from ci.least_counts import LEAST_TOML, Committed, LeastError, read_least, unfit, write_least
from ci.least_reached import lane_items
from tests.ci.logs import RESULTS, changed, where

REFERENCE, BUDGET, MOSHI = (RESULTS / f"duplex-h200-{name}.jsonl" for name in ("reference", "budget", "moshi"))
items = functools.cache(lane_items)
LANE = ("--lane", "duplex-h100", "--environment", "own")
CLAIM = "duplex.isolation.recycle"
PLACE = "duplex/reference@gpu duplex.isolation"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A copy of ci/least.toml in place of it."""
    path = tmp_path / "least.toml"
    shutil.copy(LEAST_TOML, path)
    monkeypatch.setattr(least, "LEAST_TOML", path)
    monkeypatch.setattr(least, "lane_items", items)  # collected once
    for function in (read_least, write_least):
        monkeypatch.setattr(least, function.__name__, lambda *args, call=function: call(*args, path))
    return path


def run(*arguments: object) -> int:
    return least.main([str(argument) for argument in arguments])


def test_every_lane_and_environment_commits_or_says_why_not():
    assert unfit(read_least(), read_lanes()) == []


def test_a_lane_without_counts_is_named():
    committed = {key: value for key, value in read_least().items() if key != ("cpu", "own")} | {("cpus", "own"): Committed(never="x")}
    lacking, other = unfit(committed, read_lanes())

    assert lacking.startswith("cpu.own: no least counts; run python -m ci.least update --lane cpu --environment own")
    assert "unknown lane and environment 'cpus.own'; nearest: cpu.own" in other


def test_the_recorded_run_reaches_its_counts(file, capsys):
    assert run("check", *LANE, REFERENCE, BUDGET) == 0
    assert "duplex-h100.own: 15 of 15 least counts reached, of 1 engines" in capsys.readouterr().out


def test_shards_are_counted_together(file, tmp_path):
    """The recorded run in two files, neither of which would do."""
    odd = changed(REFERENCE.name, tmp_path / "1.jsonl", lambda p: p if len(p["test"]) % 2 else None)
    even = changed(REFERENCE.name, tmp_path / "2.jsonl", lambda p: None if len(p["test"]) % 2 else p)

    assert (run("check", *LANE, odd, even, BUDGET), run("check", *LANE, odd, BUDGET)) == (0, 1)


def test_a_test_in_two_files_is_counted_once(file, tmp_path):
    skipped = changed(REFERENCE.name, tmp_path / "1.jsonl", where(CLAIM, verdict="UNAVAILABLE"))

    assert run("check", *LANE, skipped, skipped, BUDGET) == 1
    assert run("check", *LANE, skipped, REFERENCE, BUDGET) == 1


@pytest.mark.parametrize("verdict", ["UNAVAILABLE", "UNSUPPORTED", "FAIL", "INCONCLUSIVE", "VACUOUS", "ERROR"])
def test_one_claim_less_fails_and_says_why(file, tmp_path, capsys, verdict):
    log = changed(REFERENCE.name, tmp_path / "run.jsonl", where(CLAIM, verdict=verdict, reason="no card"))

    assert run("check", *LANE, log, BUDGET) == 1
    less = capsys.readouterr().out.splitlines()[0]
    assert less.startswith(f"LESS  {PLACE}: 6 of 7: ")
    assert f"1 {verdict} (no card)" in less


def test_what_a_fault_was_planted_in_does_not_count(file, tmp_path, capsys):
    log = changed(REFERENCE.name, tmp_path / "run.jsonl", where(CLAIM, fault="duplex/x"))

    assert run("check", *LANE, log, BUDGET) == 1
    less = capsys.readouterr().out.splitlines()[0]
    assert less.startswith(f"LESS  {PLACE}: 6 of 7: ")
    assert less.endswith("; 1 not among the results")


def test_a_known_failure_counts(file, tmp_path):
    log = changed(REFERENCE.name, tmp_path / "run.jsonl", where(CLAIM, verdict="KNOWN"))

    assert run("check", *LANE, log, BUDGET) == 0


def test_what_did_not_run_is_missed(file, tmp_path, capsys):
    log = changed(REFERENCE.name, tmp_path / "run.jsonl", lambda p: None if p["claim"].startswith("duplex.isolation.") else p)

    assert run("check", *LANE, log, BUDGET) == 1
    assert f"LESS  {PLACE}: 0 of 7: 8 not among the results" in capsys.readouterr().out


def test_what_the_file_does_not_know_is_shown(file, tmp_path, capsys):
    options = changed(REFERENCE.name, tmp_path / "run.jsonl", lambda p: p | {"options": "sdpa=math"} if p["claim"] == CLAIM else p)

    assert run("check", *LANE, options, REFERENCE, BUDGET) == 1
    assert "new   duplex/reference:sdpa=math@gpu duplex.isolation: 1, none committed" in capsys.readouterr().out


@pytest.mark.parametrize("lane", ["cpu", "transfer-h100"])
def test_results_of_another_lane_are_an_error(file, capsys, lane):
    assert run("check", "--lane", lane, REFERENCE) == 2
    assert f"[duplex/reference@gpu] is no test that {lane}.own takes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--lane", "duplex-h10", REFERENCE), "unknown lane 'duplex-h10'; nearest: duplex-h100"),
        (("--lane", "duplex-h100", REFERENCE), "--environment: unknown environment of lane duplex-h100 ''; there are: moshi, own"),
        (("--lane", "duplex-h100", "--environment", "moshy", REFERENCE), "nearest: moshi"),
        ((*LANE, RESULTS / "none.jsonl"), "none.jsonl"),
    ],
)
def test_wrong_use(file, capsys, arguments, says):
    assert run("check", *arguments) == 2
    assert says in capsys.readouterr().err


def test_a_lane_that_was_never_recorded_holds_nothing_to_it(file, capsys):
    assert run("update", *LANE, "--lower", "--never", "no card") == 0
    assert run("check", *LANE, REFERENCE, BUDGET) == 0
    assert "duplex-h100.own: never recorded: no card" in capsys.readouterr().out


def test_a_lane_that_was_never_recorded_must_be_run_whole(file, tmp_path, capsys):
    """Or nobody would learn of a shard that left nothing, or of a run in which nothing was judged."""
    run("update", *LANE, "--lower", "--never", "no card")
    nothing = changed(REFERENCE.name, tmp_path / "run.jsonl", lambda report: report | {"verdict": "UNAVAILABLE"})

    assert run("check", *LANE, BUDGET) == 1
    assert f"LESS  {PLACE}: " in capsys.readouterr().out
    assert run("check", *LANE, nothing) == 1
    assert "LESS  no claim holds on any engine" in capsys.readouterr().out


def test_counts_come_back_as_they_were_recorded(file):
    before = file.read_text(encoding="utf-8")
    run("update", *LANE, "--lower", "--never", "no card")

    assert run("update", *LANE, REFERENCE, BUDGET) == 0
    assert file.read_text(encoding="utf-8") == before


def test_counts_are_not_lowered_by_themselves(file, tmp_path, capsys):
    log = changed(REFERENCE.name, tmp_path / "run.jsonl", where(CLAIM, verdict="UNSUPPORTED"))

    assert run("update", *LANE, log, BUDGET) == 1
    assert f"{PLACE}: 6, and 7 is committed" in capsys.readouterr().err
    assert run("update", *LANE, "--lower", log, BUDGET) == 0
    assert read_least(file)["duplex-h100", "own"].counts["duplex/reference@gpu"]["duplex.isolation"] == 6


REFUSED = {
    "partial": (
        lambda p: None if p["claim"] == CLAIM else p,
        dict,
        "1 of the lane's tests are not in the results, suites/duplex/test_isolation",
    ),
    "failed": (where(CLAIM, verdict="FAIL"), dict, "it failed: 1 verdicts, FAIL of suites/duplex/test_isolation.py::test_recycle"),
    "a fault": (where(CLAIM, fault="duplex/x"), dict, "a fault was planted (duplex/x)"),
    "a proof": (dict, lambda s: s | {"proof": {"caught": 1}}, "a fault was planted (--prove)"),
    "ended early": (dict, lambda _: None, "it was ended before it could write its session"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_runs_that_give_no_counts(file, tmp_path, capsys, why):
    change, session, says = REFUSED[why]
    before = file.read_bytes()

    assert run("update", *LANE, changed(REFERENCE.name, tmp_path / "run.jsonl", change, session), BUDGET) == 1
    assert says in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_partial_run_is_recorded_with_its_reason(file):
    assert run("update", "--lane", "duplex-h100", "--environment", "moshi", MOSHI, "--although", "no time") == 0
    assert read_least(file)["duplex-h100", "moshi"].recorded.endswith("; no time")


@pytest.mark.parametrize("arguments", [(), ("--never", "no card", REFERENCE)])
def test_an_update_takes_results_or_a_reason(file, arguments):
    with pytest.raises(SystemExit, match="2"):
        run("update", *LANE, *arguments)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[cpu", "least.toml: "),
        ("cpu = 3", "cpu = 3: write a table"),
        ("[cpu.own]\n", "cpu.own = {}: write a table"),
        ('[cpu.own]\nrecorded = "a"\nnever = "b"\n', "cpu.own: write either recorded"),
        ('[cpu.own]\nrecorded = "a"\n', "cpu.own: counts stand with recorded"),
        ('[cpu.own]\nnever = "a"\n[cpu.own.x]\n"a.b" = 1\n', "cpu.own: counts stand with recorded"),
        ('[cpu.own]\nrecorded = "a"\n[cpu.own.x]\n"a.b" = 0\n', "cpu.own.x: a.b = 0: write a number of claims"),
        ('[cpu.own]\nrecorded = "a"\n[cpu.own.x]\n"a.b" = true\n', "cpu.own.x: a.b = True: write a number of claims"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, text, says):
    path = tmp_path / "least.toml"
    path.write_text(text)

    with pytest.raises(LeastError) as caught:
        read_least(path)

    assert says in str(caught.value)


def test_the_committed_file_is_as_it_is_written(tmp_path):
    path = tmp_path / "least.toml"
    write_least(read_least(), path)

    assert path.read_text(encoding="utf-8") == least_counts.LEAST_TOML.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", ["ci.least", "ci.known"])
def test_commands_import_neither_torch_nor_suites(module):
    code = f"import sys, {module}; print(*sorted({{'torch', 'suites', 'fixtures', 'conftest'}} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=RESULTS.parents[1])

    assert ran.stdout.strip() == ""


def test_a_lane_that_is_gone_is_dropped(file, capsys):
    write_least(read_least(file) | {("gone", "own"): Committed(never="no card")}, file)

    assert run("check", *LANE, REFERENCE, BUDGET) == 2
    assert run("update", *LANE, REFERENCE, BUDGET) == 0
    assert "dropped: gone.own: there is no such lane and environment" in capsys.readouterr().out
    assert ("gone", "own") not in read_least(file)
