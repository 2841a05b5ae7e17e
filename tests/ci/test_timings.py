"""Expected times are medians of what runs measured; the file is written whole, and what is gone from the suites goes from it."""

import json
from dataclasses import replace

import pytest

from ci.collect import collect
from ci.measured import measure
from ci.timings import KEEP, Timings, TimingsError, main, read_timings, updated, write_timings
from tests.ci.small_trees import TEST, small_tree

FIRST, SECOND = (f"{TEST}::test_{name}[connector/a@cpu]" for name in ("first", "second"))
BOOT = "connector/a@cpu"


@pytest.fixture
def root(tmp_path):
    return small_tree(tmp_path).root


@pytest.fixture
def items(root):
    """Both tests take the shared engine, as the second of the tree does not."""
    return [replace(item, builds=False) for item in collect(root)]


def log(path, *tests):
    """A report log of tests: name, seconds of set-up and of call, verdict."""
    lines = []
    for name, setup, call, verdict in tests:
        skipped = verdict in ("UNSUPPORTED", "UNAVAILABLE")
        properties = [["schema", 1], ["test", name], ["verdict", verdict]]
        report = {"$report_type": "TestReport", "nodeid": name, "user_properties": properties}
        lines.append(report | {"when": "setup", "duration": setup, "outcome": "skipped" if skipped else "passed"})
        lines += [] if skipped else [report | {"when": "call", "duration": call, "outcome": "passed"}]
        lines.append(report | {"when": "teardown", "duration": 0, "outcome": "passed"})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def junit(path, *tests):
    cases = "".join(
        f'<testcase name="x" time="{time}"><properties><property name="test" value="{name}"/><property name="verdict" value="{verdict}"/>'
        "</properties></testcase>"
        for name, time, verdict in tests
    )
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path


def test_a_boot_is_told_apart_from_the_test_that_it_falls_into(tmp_path, items):
    file = log(tmp_path / "run.jsonl", (FIRST, 5.0, 1.0, "PASS"), (SECOND, 1.0, 2.0, "FAIL"))
    (run,) = measure([file], items)

    assert run == Timings({FIRST: (2.0,), SECOND: (3.0,)}, {BOOT: (4.0,)})


def test_what_builds_its_own_engine_keeps_its_boot(tmp_path, items):
    file = log(tmp_path / "run.jsonl", (FIRST, 5.0, 1.0, "PASS"), (SECOND, 1.0, 2.0, "PASS"))
    (run,) = measure([file], [replace(item, builds=True) for item in items])

    assert run == Timings({FIRST: (6.0,), SECOND: (3.0,)})


def test_a_test_that_was_skipped_booted_nothing(tmp_path, items):
    """It takes the little that its skip took."""
    file = log(tmp_path / "run.jsonl", (FIRST, 0.5, 0, "UNSUPPORTED"), (SECOND, 4.0, 2.0, "PASS"), ("other", 0.25, 0, "UNAVAILABLE"))
    (run,) = measure([file], items)

    assert run == Timings({FIRST: (0.5,), SECOND: (2.0,), "other": (0.25,)}, {BOOT: (4.0,)})


def test_a_junit_file_tells_whole_times(tmp_path, items):
    file = junit(tmp_path / "run.xml", (FIRST, 6.0, "PASS"), (SECOND, 3.0, "PASS"), (SECOND, 3.5, "FAIL"))
    (run,) = measure([file], items)

    assert run == Timings({FIRST: (6.0,), SECOND: (3.5,)})


def test_a_run_counts_once(tmp_path, items):
    """By its report log where both are given."""
    files = [junit(tmp_path / "a.xml", (FIRST, 6.0, "PASS")), log(tmp_path / "a.jsonl", (FIRST, 0.0, 1.0, "PASS"))]

    assert measure([*files, files[1]], items) == [Timings({FIRST: (1.0,)}, {BOOT: (0.0,)})]


def test_the_last_times_are_kept_and_their_median_counts(items):
    old = Timings({FIRST: tuple(map(float, range(KEEP)))})
    new, lines = updated(old, [Timings({FIRST: (100.0,)}), Timings({FIRST: (50.0,)})], items)

    assert lines == []
    assert new.tests[FIRST] == (2.0, 3.0, 4.0, 100.0, 50.0)
    assert new.seconds(next(item for item in items if item.nodeid == FIRST)) == 4.0


def test_what_is_gone_is_dropped_and_told(items):
    old = Timings({"suites/x.py::test_gone[a]": (1.0,), FIRST: (2.0,)}, {"connector/gone@cpu": (3.0,), BOOT: (4.0,)})
    new, lines = updated(old, [], items)

    assert new == Timings({FIRST: (2.0,)}, {BOOT: (4.0,)})
    assert lines == ["dropped suites/x.py::test_gone[a]: there is no such test in this checkout"]


def test_an_unmeasured_boot_counts_as_the_middle_one():
    assert Timings(boots={"a": (1.0, 9.0, 2.0), "b": (3.0,), "d": (70.0,)}).boot_seconds("c") == 3.0
    assert Timings().boot_seconds("c") == 0.0


@pytest.mark.parametrize("timings", [Timings(), Timings({"b": (2.0,), "a": (1.0, 0.25)}, {"x": (3.0,)})])
def test_the_file_gives_back_what_was_written(tmp_path, timings):
    write_timings(timings, tmp_path / "t.json")

    assert read_timings(tmp_path / "t.json") == timings


def test_the_file_holds_a_line_an_entry_sorted(tmp_path):
    write_timings(Timings({"b": (2.0,), "a": (1.0004, 0.25)}), tmp_path / "t.json")

    assert (tmp_path / "t.json").read_text() == '{\n"boots": {\n},\n"tests": {\n "a": [1.0, 0.25],\n "b": [2.0]\n}\n}\n'


def test_no_file_is_no_times(tmp_path):
    assert read_timings(tmp_path / "none.json") == Timings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "t.json: Expecting"),
        ("[]", "holds no objects boots and tests"),
        ('{"boots": {}, "tests": []}', "holds no objects boots and tests"),
        ('{"boots": {}, "tests": {"a": [-1]}}', r"a: \[-1\]: write 1 to 5 numbers"),
        ('{"boots": {}, "tests": {"a": [NaN]}}', r"a: \[nan\]: write"),
        ('{"boots": {"x": []}, "tests": {}}', r"x: \[\]: write"),
        ('{"boots": {"x": [true]}, "tests": {}}', r"x: \[True\]: write"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path, text, said):
    (tmp_path / "t.json").write_text(text)

    with pytest.raises(TimingsError, match=said):
        read_timings(tmp_path / "t.json")


BOMB = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("run.txt", "", "give report logs"),
        ("run.jsonl", "x\n", "run.jsonl:1: no JSON"),
        ("run.jsonl", "", "tells of no test that ran"),
        ("run.jsonl", '{"$report_type": "TestReport", "duration": -1}\n', "run.jsonl:1: duration -1 is no number"),
        ("run.jsonl", '{"$report_type": "TestReport", "duration": 1, "user_properties": [1]}\n', "tells of no test that ran"),
        ("run.xml", "<testsuite>", "run.xml: no element found"),
        ("run.xml", "<testsuite/>", "tells of no test that ran"),
        ("run.xml", f"{BOMB}]><testsuite>&j;</testsuite>", "run.xml: limit on input amplification factor"),
    ],
)
def test_a_run_that_is_none_is_named_and_nothing_is_written(root, tmp_path, capsys, name, text, said):
    (tmp_path / name).write_text(text)

    assert main(["update", str(tmp_path / name)], root) == 2
    assert said in capsys.readouterr().err
    assert not (root / "ci/timings.json").exists()


def test_the_command_learns(root, tmp_path, capsys):
    file = log(tmp_path / "run.jsonl", (FIRST, 5.0, 1.0, "PASS"), (SECOND, 1.0, 2.0, "PASS"), ("gone", 1.0, 1.0, "PASS"))
    status = main(["update", str(file)], root)
    lines = capsys.readouterr().out.splitlines()

    assert status == 0
    assert lines == ["dropped gone: there is no such test in this checkout", "2 of 4 tests and 1 boots have times, from 1 runs more"]
    assert read_timings(root / "ci/timings.json") == Timings({FIRST: (1.0,), SECOND: (3.0,)}, {BOOT: (5.0,)})


def test_the_committed_times_are_of_tests_that_there_are():
    """`python -m ci.timings update` drops the others."""
    items, timings = collect(), read_timings()

    assert set(timings.tests) <= {item.nodeid for item in items}
    assert set(timings.boots) <= {item.boot for item in items}
    assert timings.tests
