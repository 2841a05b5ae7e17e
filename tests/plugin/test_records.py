"""What a run leaves behind, read back: JUnit XML, the report log, and the table at the end."""

import json
from collections import Counter

import pytest

SCHEMA_1 = set(
    "schema test claim level engine version profile options fault verdict reason figures seed control replay".split()  # noqa: SIM905
)
"""The properties of a result."""


@pytest.fixture
def mixed(suite):
    """A suite with every verdict in it, and the verdicts."""
    holds = "judge.equal(engine.echo(1), 1, 'echo')"
    suite.check(f"{holds}\njudge.figure('hits', 3, 'blocks', bound=4)", "passes")
    suite.check("judge.equal(engine.echo(1), 2, 'echo')", "fails")
    suite.check(f"{holds}\nengine.hold(1)", "leaks")
    suite.check("engine.fail()", "raises")
    suite.check("run = lambda: {'n': engine.count()}\njudge.controlled('key', run, run)", "differs")
    suite.check("engine.echo(1)", "vacuous")
    suite.check(holds, "unsupported", before="@requires(ConnectorCap.MANY_READS, value=3)")
    suite.check("judge.equal(engine.echo(1), 2, 'echo')", "known")
    suite.check("{}['missing']", "broken")
    suite.known(claim="connector.toy.known")
    return suite


MIXED = {
    "passes": "PASS", "fails": "FAIL", "leaks": "FAIL", "raises": "FAIL", "differs": "INCONCLUSIVE", "vacuous": "VACUOUS",
    "unsupported": "UNSUPPORTED", "known": "KNOWN", "broken": "ERROR",
}  # fmt: skip


def by_name(verdicts):
    return {test.partition("[")[0].removeprefix("test_"): verdict for test, verdict in verdicts.items()}


def junit_properties(case):
    return {p.get("name"): p.get("value") for p in case.iter("property")}


def check_records(ran):
    """Both files say the same of every test, once, and agree with pytest's own counts."""
    assert by_name(ran.verdicts()) == MIXED

    final = Counter()
    for report in ran.reports():
        if report["when"] == "teardown":
            final[dict(report["user_properties"])["test"]] += 1
    assert set(final.values()) == {1}
    assert len(final) == len(MIXED)
    for properties in ran.properties().values():
        assert properties.keys() >= SCHEMA_1
    # A verdict that was ever written down is the one that stands.
    written = {(p["test"], p["verdict"]) for r in ran.reports() if "verdict" in (p := dict(r["user_properties"]))}
    assert len(written) == len(MIXED)

    cases = {junit_properties(c)["test"].rpartition("::")[2]: c for c in ran.cases()}
    assert len(cases) == len(ran.cases()) == len(MIXED)
    assert {test: junit_properties(c)["verdict"] for test, c in cases.items()} == ran.verdicts()
    for test, case in cases.items():
        assert junit_properties(case) == {name: str(value) for name, value in ran.properties()[test].items()}

    kinds = {name: [child.tag for child in case if child.tag in ("failure", "error", "skipped")] for name, case in cases.items()}
    assert by_name(kinds) == {
        "passes": [], "unsupported": ["skipped"], "known": ["skipped"], "broken": ["failure"],
        **{name: ["failure"] for name in ("fails", "leaks", "raises", "differs", "vacuous")},
    }  # fmt: skip
    assert "6 failed, 1 passed, 1 skipped, 1 xfailed" in ran.stdout


def check_session(ran):
    """The session's record is in both files, and the same."""
    record = ran.session()

    assert record["schema"] == 2
    assert record["verdicts"] == [{"kind": "connector", "engine": "connector/toy@cpu", **Counter(MIXED.values())}]
    assert record["machine"]["packages"]["pytest"] == pytest.__version__
    assert record["machine"]["cores"] >= 1
    assert record["determinism"]["asked"]["deterministic_algorithms"] is True
    assert record["determinism"]["in_force"].keys() > record["determinism"]["asked"].keys()
    assert record["command"].startswith("pytest ")
    assert "--engine connector/toy" in record["command"]
    assert record["engines"]["connector/toy"]["kind"] == "connector"
    assert record["seed"] == 1234
    assert "commit" in record
    assert record["boots"] == {"connector/toy@cpu": 7}

    assert ran.junit_session() == record


def test_records(mixed):
    """JUnit and the report log hold one final verdict a test, with every property, and count what ran."""
    ran = mixed.run()

    check_records(ran)
    check_session(ran)


def test_records_of_workers(mixed):
    """The same under -n 2."""
    ran = mixed.run("-n", "2")

    check_records(ran)
    check_session(ran)


def test_junitparser_reads_it(mixed):
    """So does a reader that this project did not write."""
    junitparser = pytest.importorskip("junitparser")
    ran = mixed.run()
    suites = list(junitparser.JUnitXml.fromfile(str(ran.junit)))

    assert [(s.tests, s.failures, s.errors, s.skipped) for s in suites] == [(9, 6, 0, 2)]


def test_table(mixed):
    """The table at the end counts every verdict, by kind, engine and profile."""
    lines = mixed.run().stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("kind "))

    assert lines[head].split()[2:] == ["PASS", "FAIL", "INCONCLUSIVE", "VACUOUS", "UNSUPPORTED", "KNOWN", "ERROR"]
    assert lines[head + 1].split() == ["connector", "connector/toy@cpu", "1", "3", "1", "1", "1", "1", "1"]


def test_verdicts_in_the_progress(mixed):
    """With -v each test shows its verdict instead of pytest's word."""
    shown = mixed.run("-v").stdout

    for name in ("passes", "fails", "differs", "vacuous", "known", "broken"):
        assert f"test_toy.py::test_{name}[connector/toy@cpu] {MIXED[name]} " in shown


def test_figures(mixed):
    """A number that a test recorded is in its record, with unit and bound."""
    figures = mixed.run("-k", "passes").only()["figures"]

    assert json.loads(figures) == [{"name": "hits", "value": 3, "unit": "blocks", "bound": 4}]


def test_commit(mixed):
    """The commit of the checkout is recorded, and marked where there are changes."""
    git = "git init -q && git add -A && git -c user.name=t -c user.email=t@t commit -qm one && git rev-parse HEAD"
    head = mixed.shell(git).stdout.strip()

    assert mixed.run("-k", "passes").session()["commit"] == head
    mixed.check("pass", "another")
    assert mixed.run("-k", "passes").session()["commit"] == f"{head}+"


def test_no_commit(mixed):
    """Outside a checkout the commit is empty."""
    assert mixed.run("-k", "passes").session()["commit"] == ""


def test_nothing_is_written_unasked(suite):
    """Without the two options a run leaves no files behind."""
    suite.check("judge.equal(engine.echo(1), 1, 'echo')")
    before = {p for p in suite.path.rglob("*") if "__pycache__" not in p.parts}
    suite.pytester.runpytest_inprocess("-p", "no:cacheprovider", *suite.args())

    assert {p for p in suite.path.rglob("*") if "__pycache__" not in p.parts} - before == {suite.path / "toy.log"}


def test_builds_are_told_apart_from_calls(suite):
    """The time of a boot is none of the calls', so that a slow import cannot make the harness look cheap."""
    suite.check("judge.equal(engine.echo(1), 1, 'echo')")
    seconds = suite.run().session()["seconds"]

    assert sorted(seconds) == ["build", "engine", "loop"]
    assert min(seconds.values()) >= 0
    assert seconds["build"] + seconds["engine"] <= seconds["loop"]
