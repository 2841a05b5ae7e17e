"""JUnit files are counted and written as pytest does: what pytest wrote of a session that goes wrong in every way says how."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from ci import junit

SUITE = """
import pytest

@pytest.fixture
def torn():
    yield
    raise RuntimeError("torn")

@pytest.fixture
def never():
    raise RuntimeError("never")

def test_passes(): pass
def test_fails(): assert 0, "\\x1b[31mred\\x00 <&>"
def test_is_torn(torn): pass
def test_fails_and_is_torn(torn): assert 0
def test_never_starts(never): pass
def test_skips(): pytest.skip("no <cards>")
@pytest.mark.xfail(reason="known")
def test_known(): assert 0
@pytest.mark.xfail(strict=True, reason="known")
def test_known_passes(): pass
class TestInside:
    @pytest.mark.parametrize("x", ["a/b.py::c[1]", "\\x07", "é"])
    def test_parameter(self, x, record_property): record_property("x", x)
"""

TOTALS = ("tests", "failures", "errors", "skipped")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """The report log of that session, its JUnit file beside it."""
    root = tmp_path_factory.mktemp("written")
    (root / "suites").mkdir()
    (root / "suites/test_all.py").write_text(SUITE)
    options = ["-o", "junit_family=xunit1", "--rootdir=.", "--report-log=it.jsonl", "--junitxml=it.xml"]
    subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, "suites"], cwd=root, timeout=60, check=False)
    return root / "it.jsonl"


def suite_of(log: Path):
    suite, wrong = junit.read(log.with_suffix(".xml"))
    assert suite is not None, wrong
    return suite


def reports_of(log: Path) -> dict[str, list[dict]]:
    tests = defaultdict(list)
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "when" in entry:
            tests[entry["nodeid"]].append(entry)
    return tests


def test_names_are_those_that_pytest_gives(written):
    assert {junit.name_of(nodeid) for nodeid in reports_of(written)} == junit.names(suite_of(written))


def test_totals_are_those_that_pytest_counts_with_each_test_once(written):
    """pytest counts a test twice that goes wrong in its call and in its teardown."""
    suite = suite_of(written)
    before = [int(suite.get(total)) for total in TOTALS]
    junit.count(suite)

    assert before == [12, 3, 3, 2]
    assert [int(suite.get(total)) for total in TOTALS] == [11, 3, 3, 2]


def test_tests_written_from_the_report_log_come_to_the_same(written):
    """In totals, in properties, and in what a person reads; each in place of what was there."""
    suite = suite_of(written)
    ours = copy.deepcopy(suite)
    for nodeid, reports in reports_of(written).items():
        junit.put(ours, nodeid, reports)
    junit.count(ours)
    junit.count(suite)

    assert [ours.get(total) for total in TOTALS] == [suite.get(total) for total in TOTALS]
    assert len(list(ours.iter("testcase"))) == 11
    for case in suite.iter("testcase"):
        (own,) = [c for c in ours.iter("testcase") if c.get("name") == case.get("name")]
        assert {child.tag for child in case} <= {child.tag for child in own}
        assert [p.attrib for p in own.iter("property")] == [p.attrib for p in case.iter("property")]


def test_what_xml_cannot_hold_is_written_as_pytest_writes_it(written):
    (nodeid,) = [nodeid for nodeid in reports_of(written) if "test_fails" in nodeid and "torn" not in nodeid]
    suite = suite_of(written)
    junit.put(suite, nodeid, reports_of(written)[nodeid])
    (failure,) = [case.find("failure") for case in suite.iter("testcase") if case.get("name") == "test_fails"]

    assert "#x1B[31mred#x00 <&>" in failure.text


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("", "no element found"), ("<testsuites/>", "0 test suites"), ("<a><testsuite/><testsuite/></a>", "2 test suites; pytest writes one")],
)
def test_a_file_that_is_none_of_pytests_says_so(tmp_path, text, wrong):
    (tmp_path / "a.xml").write_text(text)
    suite, told = junit.read(tmp_path / "a.xml")

    assert suite is None
    assert told.startswith(f"{tmp_path / 'a.xml'}: ")
    assert wrong in told
