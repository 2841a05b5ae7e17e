"""Merging of shards: recorded runs of the toy engine, as they are and damaged in every way that a killed or repeated run damages them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import junitparser
import pytest

from ci.choose import worst
from ci.merge import find_logs, main, merge
from harness.report.runs import read_run

ROOT = Path(__file__).parents[2]

SUITE = """
import pytest
from harness.core.claims import claim

@claim("connector.{shard}.says", source="the toy")
def test_says(engine, judge):
    '''It says what it is told.'''
    judge.equal(engine.echo(1), 1, "echo")

@claim("connector.{shard}.adds", source="the toy")
def test_adds(engine, judge):
    '''It adds.'''
    judge.equal(engine.echo(1), {sum}, "echo")

@pytest.fixture
def torn():
    yield
    raise RuntimeError("torn")

@claim("connector.{shard}.torn", source="the toy")
def test_torn(engine, judge, torn):
    '''Its own fixture is broken.'''
    judge.equal(engine.echo(1), 1, "echo")
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A folder with what two sessions wrote: in both a fixture breaks, in `toy-2` a test fails."""
    root = tmp_path_factory.mktemp("recorded")
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copy(ROOT / "tests/plugin/toy_engine.py", root / "toy.py")
    (root / "conftest.py").write_text('pytest_plugins = ["harness.pytest_plugin"]\n')
    (root / "connector").mkdir()
    sessions = []
    for number in (1, 2):
        (root / f"connector/test_{number}.py").write_text(SUITE.format(shard=f"toy{number}", sum=number))
        files = [f"--report-log=out/toy-{number}.jsonl", f"--junitxml=out/toy-{number}.xml", f"connector/test_{number}.py"]
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--adapter", "toy:Toy", "--engine", "connector/toy", *files]
        paths = {"PYTHONPATH": os.pathsep.join([str(root), str(ROOT)])}
        sessions.append(subprocess.Popen(command, cwd=root, env={**os.environ, **paths}, stdout=subprocess.PIPE, text=True))
    printed = [session.communicate(timeout=60)[0] for session in sessions]
    assert [session.returncode for session in sessions] == [1, 1], printed
    return root / "out"


@pytest.fixture
def folder(recorded, tmp_path) -> Path:
    """Two complete attempts, one of each shard, to do with as a test likes."""
    shutil.copytree(recorded, tmp_path / "run")
    return tmp_path / "run"


def edit(path: Path, pattern: str, new: str, count: int = 0) -> None:
    """Replace in a file what must be there."""
    text, found = re.subn(pattern, lambda _: new, path.read_text(), count=count)
    assert found
    path.write_text(text)


def repeat(folder: Path, shard: str, *, later: bool = True) -> Path:
    """A second attempt at a shard, a folder further down, that says the same; returns its report log. `later`: of the two sessions."""
    (folder / "again").mkdir(exist_ok=True)
    for suffix in (".jsonl", ".xml"):
        shutil.copy(folder / f"{shard}{suffix}", folder / "again")
    log = folder / "again" / f"{shard}.jsonl"
    edit(log, r'"started": "2\d', '"started": "29' if later else '"started": "19')
    return log


def end(log: Path, lines: int, *, more: int = 0) -> None:
    """Leave what a writer had written that was killed after so many lines, and `more` bytes of the next."""
    written = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(written[:lines]) + written[lines][:more])
    log.with_suffix(".xml").unlink(missing_ok=True)


def line_of(log: Path, test: str, when: str) -> int:
    """The number of the line that reports the end of a test's phase."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return next(n for n, e in enumerate(entries, start=1) if e.get("when") == when and f"::{test}[" in e["nodeid"])


def merged(folder: Path, expected_status: int = 0) -> tuple[dict[str, str], junitparser.JUnitXml]:
    """Run the command on the folder; the verdicts of the merged log by the tests' names, and its JUnit file as others read it."""
    assert main([str(folder), "-o", str(folder.parent / "all")]) == expected_status
    run = read_run(folder.parent / "all.jsonl")
    verdicts = {result.test.partition("/")[2].partition("[")[0]: str(result.verdict) for result in run.results}
    assert len(verdicts) == len(run.results)
    return verdicts, junitparser.JUnitXml.fromfile(str(folder.parent / "all.xml"))


def session(folder: Path) -> dict:
    return dict(read_run(folder.parent / "all.jsonl").session)


def properties(case: junitparser.TestCase) -> dict[str, str]:
    return {p.name: p.value for p in case.child(junitparser.Properties)}


def totals(xml: junitparser.JUnitXml) -> tuple[int, int, int, int]:
    return xml.tests, xml.failures, xml.errors, xml.skipped


ALL = {
    "test_1.py::test_says": "PASS", "test_1.py::test_adds": "PASS", "test_1.py::test_torn": "ERROR",
    "test_2.py::test_says": "PASS", "test_2.py::test_adds": "FAIL", "test_2.py::test_torn": "ERROR",
}  # fmt: skip
TOTALS = (6, 3, 0, 0)


def test_every_test_of_every_shard_is_there_once(folder):
    verdicts, xml = merged(folder)

    assert verdicts == ALL
    assert sorted({(case.classname, case.name) for suite in xml for case in suite}) == sorted(
        (f"connector.test_{n}", f"test_{t}[connector/toy@cpu]") for n in (1, 2) for t in ("says", "adds", "torn")
    )


def test_totals_are_those_that_pytest_wrote(folder):
    """Counted anew they come to the same."""
    written = [junitparser.JUnitXml.fromfile(str(folder / f"toy-{n}.xml")) for n in (1, 2)]
    _, xml = merged(folder)

    assert totals(xml) == TOTALS
    for suite, (before,) in zip(xml, written, strict=True):
        assert totals(suite) == totals(before)
        assert suite.time == before.time


def test_properties_of_tests_and_sessions_are_kept(folder):
    (before,) = junitparser.JUnitXml.fromfile(str(folder / "toy-2.xml"))
    _, xml = merged(folder)
    (suite,) = [suite for suite in xml if suite.name == "toy-2"]

    assert [(p.name, p.value) for p in suite.properties()] == [(p.name, p.value) for p in before.properties()]
    assert [properties(case) for case in suite] == [properties(case) for case in before]
    assert all(len(properties(case)) > 15 for case in suite)


def test_the_session_holds_what_is_alike_and_the_record_of_each_shard(folder):
    edit(folder / "toy-2.jsonl", r'"cpu": "[^"]*"', '"cpu": "Another"')
    merged(folder)
    told, first = session(folder), dict(read_run(folder / "toy-1.jsonl").session)

    assert (told["commit"], told["seed"], told["schema"]) == (first["commit"], first["seed"], first["schema"])
    assert told["machine"] == {key: value for key, value in first["machine"].items() if key != "cpu"}
    assert [shard["session"]["machine"]["cpu"] for shard in told["shards"]] == [first["machine"]["cpu"], "Another"]
    assert told["boots"] == {"connector/toy@cpu": sum(shard["session"]["boots"]["connector/toy@cpu"] for shard in told["shards"])}
    assert told["verdicts"] == [{"kind": "connector", "engine": "connector/toy@cpu", "PASS": 3, "ERROR": 2, "FAIL": 1}]


def test_each_report_says_which_shard_it_is_of(folder):
    merged(folder)
    reports = [json.loads(line) for line in (folder.parent / "all.jsonl").read_text().splitlines()]

    assert {(r["assay_shard"], r["nodeid"].partition("::")[0]) for r in reports if "when" in r} == {
        ("toy-1", "connector/test_1.py"),
        ("toy-2", "connector/test_2.py"),
    }


def test_a_shard_that_ran_twice_counts_once_by_its_last_attempt(folder):
    again = repeat(folder, "toy-1")
    edit(again, r'"duration": [\d.e-]+', '"duration": 7.0')
    verdicts, xml = merged(folder)

    assert verdicts == ALL
    assert totals(xml) == TOTALS
    assert {r.seconds for r in read_run(folder.parent / "all.jsonl").results if "test_1" in r.test} == {21.0}


def test_it_is_the_last_by_the_clock_not_by_the_folder(folder):
    again = repeat(folder, "toy-1", later=False)
    edit(again, r'"duration": [\d.e-]+', '"duration": 7.0')
    merged(folder)

    assert all(r.seconds < 21 for r in read_run(folder.parent / "all.jsonl").results)


def test_attempts_that_go_by_two_names_are_refused(folder, capsys):
    """What would count twice if attempts were not told by their names."""
    log = repeat(folder, "toy-1")
    for path in (log, log.with_suffix(".xml")):
        path.rename(path.with_stem("toy-3"))

    assert main([str(folder), "-o", str(folder.parent / "all")]) == 2
    assert "which are no attempts at one shard" in capsys.readouterr().err
    assert not (folder.parent / "all.jsonl").exists()


@pytest.mark.parametrize("more", [0, 1, 200])
@pytest.mark.parametrize("lines", [0, 3, -1])
def test_what_a_killed_writer_left_is_dropped_where_another_attempt_is_complete(folder, lines, more):
    log = repeat(folder, "toy-1")
    end(log, lines % len(log.read_text().splitlines()), more=more)
    verdicts, xml = merged(folder)

    assert verdicts == ALL
    assert totals(xml) == TOTALS


def test_a_shard_without_a_complete_attempt_fails_the_merge_and_loses_nothing(folder, capsys):
    """Its finished tests are merged, it stands in both files as an error, and the line where it was cut off is named."""
    log = folder / "toy-1.jsonl"
    last = line_of(log, "test_adds", "call")
    end(log, last, more=40)
    verdicts, xml = merged(folder, 1)

    assert f"toy-1.jsonl: was ended before its SessionFinish, cut off in line {last + 1}" in capsys.readouterr().err
    assert verdicts == {test: v for test, v in ALL.items() if test == "test_1.py::test_says" or "test_2" in test}
    assert totals(xml) == (5, 2, 1, 0)
    (error,) = next(case.result for suite in xml for case in suite if case.name == "toy-1")
    assert error.message.startswith("no attempt is complete")
    lines = [json.loads(line) for line in (folder.parent / "all.jsonl").read_text().splitlines()]
    assert lines[-1] == {"exitstatus": 3, "$report_type": "SessionFinish"}
    assert [e["outcome"] for e in lines if e["$report_type"] == "CollectReport" and e["nodeid"] == "toy-1"] == ["failed"]


def test_unfinished_attempts_add_up_where_none_is_complete(folder):
    """One saw the first test to its end, the other the second."""
    log = repeat(folder, "toy-1")
    written = log.read_text().splitlines(keepends=True)
    kept = [line for line in written if "test_says" not in line]
    log.write_text("".join(kept))
    end(log, line_of(log, "test_adds", "teardown"))
    end(folder / "toy-1.jsonl", line_of(folder / "toy-1.jsonl", "test_says", "teardown"))
    verdicts, _ = merged(folder, 1)

    assert verdicts == {test: v for test, v in ALL.items() if test != "test_1.py::test_torn"}


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_failure_that_another_attempt_did_not_see_is_merged_and_told(folder, capsys, later, killed):
    """Whichever came first, and whether or not the attempt that saw it was complete."""
    log = repeat(folder, "toy-1", later=later)
    edit(log, r'\["verdict", "PASS"\]', '["verdict", "FAIL"]')
    edit(log, r'"outcome": "passed"', '"outcome": "failed"')
    if killed:
        end(log, line_of(log, "test_torn", "setup"))
    verdicts, xml = merged(folder, 1)

    assert verdicts == ALL | {"test_1.py::test_says": "FAIL", "test_1.py::test_adds": "FAIL"}
    told = capsys.readouterr().err
    assert "toy-1: attempts disagree on connector/test_1.py::test_says[connector/toy@cpu]: " in told
    assert f"FAIL in {log}" in told
    assert f"PASS in {folder / 'toy-1.jsonl'}" in told
    assert json.loads((folder.parent / "all.jsonl").read_text().splitlines()[-1])["exitstatus"] == 1
    assert all(case.result for suite in xml for case in suite if "test_1" in case.classname) == (not later or killed)


@pytest.mark.parametrize("fails", ["FAIL", "INCONCLUSIVE", "VACUOUS", "ERROR"])
def test_whatever_fails_a_run_is_merged_before_a_pass(folder, fails):
    """Also where the attempt that counts passed."""
    log = repeat(folder, "toy-1", later=False)
    edit(log, r'\["verdict", "PASS"\]', f'["verdict", "{fails}"]')
    verdicts, _ = merged(folder, 1)

    assert verdicts["test_1.py::test_says"] == fails


def test_of_unfinished_attempts_the_one_that_came_farthest_counts(folder):
    again, first = repeat(folder, "toy-1"), folder / "toy-1.jsonl"
    end(again, line_of(again, "test_says", "teardown"))
    end(first, line_of(first, "test_adds", "teardown"))
    shard = merge(find_logs([folder]), command="").shards[0]

    assert shard.counted.log == first
    assert [len(attempt.tests) for attempt in shard.attempts] in ([1, 2], [2, 1])


def test_a_collection_that_failed_in_one_shard_alone_is_told(folder):
    edit(folder / "toy-2.jsonl", r'"outcome": "passed"', '"outcome": "failed"', 1)
    merged(folder)
    lines = [json.loads(line) for line in (folder.parent / "all.jsonl").read_text().splitlines()]

    assert sorted(e["outcome"] for e in lines if e["$report_type"] == "CollectReport" and e["nodeid"] == "") == ["failed", "passed"]


def test_attempts_that_disagree_without_a_failure_fail_the_merge_too(folder, capsys):
    log = repeat(folder, "toy-1")
    edit(log, r'\["verdict", "PASS"\]', '["verdict", "UNAVAILABLE"]')
    verdicts, _ = merged(folder, 1)

    assert verdicts["test_1.py::test_says"] == "UNAVAILABLE"
    assert "merged as UNAVAILABLE" in capsys.readouterr().err


def test_a_complete_attempt_that_lacks_a_test_of_another_is_told(folder, capsys):
    """As where the collection changed between them."""
    log = repeat(folder, "toy-1")
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "test_says" not in line))
    verdicts, _ = merged(folder, 1)

    assert verdicts == ALL
    assert "the attempt that counts lacks connector/test_1.py::test_says" in capsys.readouterr().err


@pytest.mark.parametrize("status", [2, 3, 4])
def test_a_session_that_was_interrupted_or_broke_is_not_complete(folder, capsys, status):
    edit(folder / "toy-1.jsonl", '"exitstatus": 1', f'"exitstatus": {status}')
    merged(folder, 1)

    assert f"pytest ended with exit status {status}" in capsys.readouterr().err


@pytest.mark.parametrize(("out", "said"), [(".", "write DIR/NAME"), ("all", "all.xml: a folder; give -o another name")])
def test_a_target_that_is_no_file_is_refused_and_nothing_is_written(folder, monkeypatch, capsys, out, said):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "all.xml").mkdir()

    assert main([str(folder), "-o", out]) == 2
    assert said in capsys.readouterr().err
    assert not (folder.parent / "all.jsonl").exists()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda xml: xml.unlink(), "is missing"),
        (lambda xml: xml.write_bytes(xml.read_bytes()[:-20]), "toy-1.xml: "),
        (
            lambda xml: edit(xml, r'name="test_says\[', 'name="test_said['),
            "lacks 1 tests of toy-1.jsonl, such as connector/test_1.py::test_says",
        ),
        (lambda xml: xml.write_text("<testsuites/>"), "0 test suites"),
    ],
    ids=["missing", "cut off", "another test", "empty"],
)
def test_an_attempt_without_a_whole_junit_file_is_not_complete(folder, capsys, damage, text):
    """Its tests are written from the report log, with their properties and what went wrong."""
    damage(folder / "toy-1.xml")
    verdicts, xml = merged(folder, 1)
    case = next(case for suite in xml for case in suite if case.classname == "connector.test_1" and case.name.startswith("test_torn"))

    assert text in capsys.readouterr().err
    assert verdicts == ALL
    assert totals(xml) == (TOTALS[0] + 1, TOTALS[1], TOTALS[2] + 1, TOTALS[3])
    assert properties(case)["verdict"] == "ERROR"
    assert [type(result).__name__ for result in case.result] == ["Failure"]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda log: edit(log, r'"commit": "[^"]*"', '"commit": "abc"'), "their commit differs: "),
        (lambda log: edit(log, r'"seed": \d+', '"seed": 7'), "their seed differs: "),
        (lambda log: edit(log, '"schema": 2', '"schema": 99'), "their schema differs: "),
        (lambda log: edit(log, '"environment": "[^"]*"', '"environment": "vllm"'), "their environment differs: "),
        (lambda log: edit(log, '"proof": null', '"proof": {"faults": 1}'), "a proof (--prove) is scored in one session"),
        (lambda log: edit(log, r'"when": "setup"', '"when": "set', 1), "no JSON; the file was cut off"),
        (lambda log: edit(log, '"proof": null', '"proof": null, "shards": []'), "this file is a merged one"),
        (lambda log: edit(log, r'\["test", "connector', '["test", "elsewhere'), "the property `test` of some is not their node id"),
        (lambda log: log.unlink(), "has no toy-2.jsonl beside it"),
    ],
    ids=["commit", "seed", "schema", "environment", "proof", "damaged line", "merged", "test", "no log"],
)
def test_what_are_no_shards_of_one_run_is_refused_and_nothing_is_written(folder, capsys, damage, text):
    (folder.parent / "all.jsonl").write_text("of before")
    damage(folder / "toy-2.jsonl")

    assert main([str(folder), "-o", str(folder.parent / "all")]) == 2
    assert text in capsys.readouterr().err
    assert [path.name for path in folder.parent.iterdir() if path.is_file()] == ["all.jsonl"]
    assert (folder.parent / "all.jsonl").read_text() == "of before"


@pytest.mark.parametrize(("name", "text"), [("nowhere", "there is no such file or folder"), ("empty", "no *.jsonl there")])
def test_nothing_to_merge_is_wrong_use(tmp_path, capsys, name, text):
    (tmp_path / "empty").mkdir()

    assert main([str(tmp_path / name), "-o", str(tmp_path / "all")]) == 2
    assert text in capsys.readouterr().err


def test_merging_into_the_folder_that_is_merged_can_be_done_again(folder):
    arguments = [str(folder), "-o", str(folder / "all")]
    assert main(arguments) == 0
    first = (folder / "all.jsonl").read_text()

    assert main(arguments) == 0
    assert (folder / "all.jsonl").read_text() == first


def test_a_file_given_twice_counts_once(folder):
    assert find_logs([folder, folder / "toy-1.jsonl", folder / "toy-1.xml"]) == [folder / "toy-1.jsonl", folder / "toy-2.jsonl"]


def test_expected_tests_and_shards_that_are_not_there_are_missed(folder):
    ids = {f"toy-{n}": [r.test for r in read_run(folder / f"toy-{n}.jsonl").results] for n in (1, 2)}
    whole = merge(find_logs([folder]), expected=ids)
    assert whole.trouble == ()

    found = merge(find_logs([folder]), expected={"toy-1": [*ids["toy-1"], "a.py::b"], "toy-2": ids["toy-2"], "toy-3": ["a.py::c"]})

    assert found.trouble == (
        "toy-1: 1 of its 4 tests have no result, such as a.py::b",
        "toy-3: no attempt is complete: none left a report log",
        "toy-3: 1 of its 1 tests have no result, such as a.py::c",
    )
    assert found.status == 3


@pytest.mark.parametrize(
    ("statuses", "status"),
    [([], 5), ([0, 0], 0), ([0, 5], 5), ([5, 1], 1), ([1, 4], 4), ([4, 3], 3), ([0, 1, 5, 3, 2], 2), ([0, -9], 3), ([0, 70], 3)],
)
def test_the_worst_exit_status_decides(statuses, status):
    assert worst(statuses) == worst(reversed(statuses)) == status
