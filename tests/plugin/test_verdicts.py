"""From what happens in a test to its verdict, its reason and the run's exit code."""

from importlib import metadata

import pytest

VERSION = metadata.version("pluggy")

HOLDS = "judge.equal(engine.echo(1), 1, 'echo')"
BREAKS = "judge.equal(engine.echo(1), 2, 'echo')"
MANY_READS = "@requires(ConnectorCap.MANY_READS)"


def test_pass(suite):
    """A comparison that holds is a PASS."""
    suite.check(HOLDS)
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("PASS", 0)


def test_claim_broken(suite):
    """A comparison that does not hold is a FAIL with what was got as its reason."""
    suite.check(BREAKS)
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("FAIL", 1)
    assert ran.only()["reason"] == "WRONG ANSWER: echo = 1"


@pytest.mark.parametrize(("body", "got"), [("assert engine.echo(1) == 2", "assert 1 == 2"), ("pytest.fail('no good')", "no good")])
def test_bare_assertion(suite, body, got):
    """An assertion outside the judge is a FAIL too, and says what it compared."""
    suite.check(body)
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("FAIL", 1)
    assert "ASSERTION FAILED  connector/toy@cpu" in ran.stdout
    assert got in ran.only()["reason"]


def test_engine_raises(suite):
    """An engine that raises is a FAIL of the claim, with the call and the line of the engine."""
    suite.check("engine.fail()")
    ran = suite.run()
    line = (suite.path / "toy.py").read_text().splitlines().index('        raise RuntimeError("out of pages")') + 1

    assert (ran.verdict, ran.ret) == ("FAIL", 1)
    assert f"RuntimeError: out of pages (from fail(), at {suite.path / 'toy.py'}:{line})" in ran.stdout


def test_engine_raises_while_it_boots(suite):
    """A build that raises is a FAIL like any other, not a broken set-up."""
    suite.check(HOLDS)
    ran = suite.run(adapter="Broken")

    assert (ran.verdict, ran.ret) == ("FAIL", 1)
    assert ran.only()["reason"].startswith("ENGINE RAISED: RuntimeError: no kernel image (from build()")
    assert "1 failed" in ran.stdout


def test_harness_error(suite):
    """An exception that no engine raised is an ERROR, with a traceback to mend it by."""
    suite.check("{}['missing']")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("ERROR", 1)
    assert "KeyError: 'missing'" in ran.stdout
    assert "test_toy.py" in ran.stdout
    assert "the harness broke, not the engine" in ran.stdout


def test_skip_inside_a_test(suite):
    """A test that skips itself would pass silently; it is an ERROR."""
    suite.check(f"{HOLDS}\npytest.skip('not today')")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("ERROR", 1)
    assert "not today" in ran.stdout


def test_xfail_inside_a_test(suite):
    """Nor may a test excuse its engine: expected failures stand in known_failures.toml."""
    suite.check("pytest.xfail('it never did')")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("ERROR", 1)


def test_error_in_a_fixture(suite):
    """A fixture that breaks is an ERROR of the tests that take it."""
    suite.write("""
        @pytest.fixture
        def broken():
            raise KeyError("missing")
    """)
    suite.check(HOLDS, takes="engine, judge, broken")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("ERROR", 1)
    assert "KeyError: 'missing'" in ran.stdout


def test_error_in_a_fixture_that_ends(suite):
    """A fixture that breaks after a PASS takes the PASS back."""
    suite.write("""
        @pytest.fixture
        def broken():
            yield
            raise KeyError("missing")
    """)
    suite.check(HOLDS, takes="engine, judge, broken")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("ERROR", 1)


def test_control_differs(suite):
    """An engine that does not repeat itself cannot be judged: INCONCLUSIVE."""
    suite.check("run = lambda: {'count': engine.count()}\njudge.controlled('key', run, run)")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("INCONCLUSIVE", 1)
    assert ran.only()["control"] == "A, B, A: the two A runs differ"
    assert "control   A, B, A: the two A runs differ" in ran.stdout


def test_control_repeats(suite):
    """An engine that repeats itself is judged, and the record says that it was controlled."""
    suite.check("run = lambda: {'echo': engine.echo(1)}\na, b = judge.controlled('key', run, run)\njudge.equal(a, b, 'both')")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("PASS", 0)
    assert ran.only()["control"] == "A, B, A: both A runs identical over 1 records"


@pytest.mark.parametrize("takes", ["engine, judge", "engine"])
def test_nothing_compared(suite, takes):
    """A test that compared nothing, or had nothing to compare with, is VACUOUS."""
    suite.check("engine.echo(1)", takes=takes)
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("VACUOUS", 1)
    assert ran.only()["reason"] == "NOTHING COMPARED: 0 values compared"


def test_path_not_taken(suite):
    """Comparisons on another path than the one under test are VACUOUS."""
    suite.check(f"{HOLDS}\njudge.taken(0, 'evictions')")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("VACUOUS", 1)
    assert ran.only()["reason"] == "PATH NOT TAKEN: evictions: 0 times"


def test_stimulus_invisible(suite):
    """A stimulus that shows nowhere makes the check VACUOUS."""
    suite.check("judge.differ(torch.ones(2), torch.ones(2), 'both')")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("VACUOUS", 1)


@pytest.mark.parametrize(
    ("adapter", "reason"), [("Never", "many_reads: one reader only"), ("Newer", f"many_reads: since 99.0; this is {VERSION}")]
)
def test_unsupported(suite, adapter, reason):
    """A claim that an engine does not promise, or not in this version, is UNSUPPORTED; the engine is not even booted."""
    suite.check(BREAKS, before=MANY_READS)
    ran = suite.run("-rs", adapter=adapter)

    assert (ran.verdict, ran.only()["reason"]) == ("UNSUPPORTED", reason)
    assert f"UNSUPPORTED: {reason}" in ran.stdout
    assert suite.log() == []


@pytest.mark.parametrize("adapter", ["Toy", "Older"])
def test_supported(suite, adapter):
    """A claim that the engine promises, or promised from an older version on, is judged."""
    suite.check(BREAKS, before=MANY_READS)

    assert suite.run(adapter=adapter).verdict == "FAIL"


def test_unsupported_value(suite):
    """A claim about a number is judged only where the engine declares that number."""
    suite.check(HOLDS, before="@requires(ConnectorCap.MANY_READS, value=2)")
    ran = suite.run()

    assert ran.verdict == "UNSUPPORTED"
    assert ran.only()["reason"] == "many_reads: the claim is about 2, connector/toy declares None"


def test_unavailable_and_named(suite):
    """An engine that cannot run here, named by the user, is UNAVAILABLE test by test, with its own words."""
    suite.check(HOLDS)
    ran = suite.run(adapter="Missing")

    assert (ran.verdict, ran.only()["reason"], ran.ret) == ("UNAVAILABLE", "no cards here", 5)
    assert "UNAVAILABLE  connector/missing@cpu: no cards here" in ran.stdout


def test_unavailable_and_not_named(suite):
    """An engine that cannot run here, and that nobody named, is reported once and has no tests."""
    suite.check(HOLDS)
    ran = suite.run("--adapter", "toy:Missing", engine="connector/[mt][io][sy]*")

    assert ran.verdicts() == {"test_it[connector/toy@cpu]": "PASS"}
    assert ran.stdout.count("UNAVAILABLE  connector/missing@cpu: no cards here") == 1


def test_unavailable_once_built(suite):
    """What only a build can know is UNAVAILABLE too."""
    suite.check(HOLDS)
    ran = suite.run(adapter="Gated")

    assert (ran.verdict, ran.only()["reason"], ran.ret) == ("UNAVAILABLE", "weights are gated", 5)
    assert suite.log() == ["refuse connector/gated"]


def test_nothing_judged(suite):
    """A run that skipped everything is no success: exit code 5."""
    suite.check(HOLDS, before=MANY_READS)

    assert suite.run(adapter="Never").ret == 5


def test_something_judged(suite):
    """One judged claim makes it a run."""
    suite.check(HOLDS, before=MANY_READS)
    suite.check(HOLDS, "other")
    ran = suite.run(adapter="Never")

    assert ran.ret == 0
    assert ran.counts() == {"UNSUPPORTED": 1, "PASS": 1}
