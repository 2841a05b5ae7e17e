"""Expected failures: an entry of ci/known_failures.toml, and a capability declared NOT_YET."""

from importlib import metadata

import pytest

VERSION = metadata.version("pluggy")

HOLDS = "judge.equal(engine.echo(1), 1, 'echo')"
BREAKS = "judge.equal(engine.echo(1), 2, 'echo')"
MANY_READS = "@requires(ConnectorCap.MANY_READS)"
DIFFERS = "run = lambda: {'count': engine.count()}\njudge.controlled('key', run, run)"


def test_known_failure(suite):
    """A failure that has an entry is KNOWN, with the issue and the evidence, and the run passes."""
    suite.check(BREAKS)
    suite.known()
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("KNOWN", 0)
    assert ran.only()["reason"] == "https://example.org/1: seen here"
    assert "1 xfailed" in ran.stdout


@pytest.mark.parametrize(("options", "verdict"), [(":mode=loud", "KNOWN"), (":mode=plain", "FAIL"), ("", "FAIL")])
def test_entry_with_options(suite, options, verdict):
    """An entry with options excuses the engine with just those."""
    suite.check(BREAKS)
    suite.known(engine="connector/toy:mode=loud")

    assert suite.run("--engine", f"connector/toy{options}", engine=None).verdict == verdict


@pytest.mark.parametrize(("pattern", "verdict"), [("connector/toy*", "KNOWN"), ("*/toy", "FAIL")])
def test_entry_for_any_options(suite, pattern, verdict):
    """An entry may be a glob, which the name with its options must match."""
    suite.check(BREAKS)
    suite.known(engine=pattern)

    assert suite.run("--engine", "connector/toy:mode=loud", engine=None).verdict == verdict


@pytest.mark.parametrize(("look_again", "told"), [("2020-01-01", True), ("9999-12-31", False)])
def test_look_again(suite, look_again, told):
    """An entry whose day has come is told of; it excuses for now."""
    suite.check(BREAKS)
    suite.known(look_again=look_again)
    ran = suite.run()

    assert ran.verdict == "KNOWN"
    assert ("known failure to look at again: connector.toy.it on connector/toy (toy, since 2020-01-01)" in ran.stdout) is told


@pytest.mark.parametrize(
    ("fields", "code"),
    [({}, 1), ({"look_again": "9999-12-31"}, 0), ({"engine": "connector/memory"}, 0), ({"versions": ["0.0.9"]}, 0)],
    ids=["expired", "in time", "another engine", "another version"],
)
def test_look_again_strictly(suite, fields, code):
    """With --strict-known, as lanes have it, an expired entry of the run's own engines and versions fails the run."""
    suite.check(BREAKS if set(fields) <= {"look_again"} else HOLDS)
    suite.known(**{"look_again": "2020-01-01", **fields})
    ran = suite.run("--strict-known")

    assert (ran.verdict in ("KNOWN", "PASS"), ran.ret) == (True, code)


def test_known_failure_of_the_boot(suite):
    """So is an engine that does not boot."""
    suite.check(HOLDS)
    suite.known(engine="connector/broken")
    ran = suite.run(adapter="Broken")

    assert (ran.verdict, ran.ret) == ("KNOWN", 0)


def test_reboot_after_a_known_failure(suite):
    """A known failure leaves the engine in as unknown a state as any other."""
    suite.check("engine.fail()")
    suite.check(HOLDS, "next")
    suite.known()

    assert suite.run().counts() == {"KNOWN": 1, "PASS": 1}
    assert suite.log() == ["boot connector/toy", "close connector/toy"] * 2


@pytest.mark.parametrize(
    "fields",
    [{"engine": "connector/memory"}, {"versions": ["0.0.9"]}, {"claim": "connector.toy.other"}, {"verdict": "VACUOUS"}],
    ids=lambda f: next(iter(f)),
)
def test_entry_of_another_failure(suite, fields):
    """An entry excuses only its own engine, versions, claim and verdict."""
    suite.check(BREAKS)
    suite.check(BREAKS, "other")
    suite.known(**fields)
    ran = suite.run("-k", "test_it")

    assert (ran.verdict, ran.ret) == ("FAIL", 1)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"engine": "connector/to"}, "known failure 1: unknown engine 'connector/to'; nearest: connector/toy"),
        ({"claim": "connector.toy.its"}, "known failure 1: unknown claim 'connector.toy.its'; nearest: connector.toy.it"),
    ],
)
def test_entry_of_nothing(suite, fields, text):
    """An entry of an engine or claim that there is not would excuse nothing: it is refused, with the nearest."""
    suite.check(HOLDS)
    suite.known(**fields)
    ran = suite.run()

    assert ran.ret == 4
    assert text in ran.printed


def test_known_failure_that_passes(suite):
    """An entry that nothing fails under any more fails the run, and says what to delete."""
    suite.check(HOLDS)
    suite.known()
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("FAIL", 1)
    assert "EXPECTED FAILURE PASSED" in ran.stdout
    assert f"delete the entry of connector.toy.it on connector/toy {VERSION} from ci/known_failures.toml" in ran.stdout


def test_known_inconclusive(suite):
    """An entry may excuse an engine that does not repeat itself."""
    suite.check(DIFFERS)
    suite.known(verdict="INCONCLUSIVE")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("KNOWN", 0)


def test_known_inconclusive_that_passes(suite):
    """It may repeat itself by luck: a PASS stays a PASS."""
    suite.check(HOLDS)
    suite.known(verdict="INCONCLUSIVE")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("PASS", 0)


def test_known_failure_does_not_excuse_the_harness(suite):
    """A harness that breaks is an ERROR whatever the entries say."""
    suite.check("{}['missing']")
    suite.known()
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("ERROR", 1)


def test_known_leak(suite):
    """A leak found after the test is excused by an entry like any other failure."""
    suite.check(f"{HOLDS}\nengine.hold(1)")
    suite.known()
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("KNOWN", 0)


def test_not_yet(suite):
    """A claim on a capability that is to come runs, and its failure is KNOWN."""
    suite.check(BREAKS, before=MANY_READS)
    ran = suite.run(adapter="NotYet")

    assert (ran.verdict, ran.only()["reason"], ran.ret) == ("KNOWN", "many_reads not yet: planned", 0)
    assert suite.log() == ["boot connector/notyet", "close connector/notyet"]


def test_not_yet_that_passes(suite):
    """Once it passes, the run fails until the declaration is raised."""
    suite.check(HOLDS, before=MANY_READS)
    ran = suite.run(adapter="NotYet")

    assert (ran.verdict, ran.ret) == ("FAIL", 1)
    assert "raise the capability many_reads of connector/notyet in its adapter's spec from not_yet" in ran.stdout


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"owner": None}, "missing ['owner']"),
        ({"own": "me"}, "unknown ['own']"),
        ({"verdict": "PASS"}, "FAIL, INCONCLUSIVE, VACUOUS"),
        ({"verdict": "ERROR"}, "FAIL, INCONCLUSIVE, VACUOUS"),
        ({"verdict": "MAYBE"}, "MAYBE"),
        ({"opened": '"2026-01-01"'}, "write a date"),
        ({"look_again": "2026-01-01T12:00:00"}, "write a date"),
        ({"evidence": " "}, "evidence = ' ': write a text"),
        ({"evidence": 3}, "evidence"),
        ({"versions": "0.1.0"}, "versions"),
    ],
)
def test_malformed_entry(suite, fields, says):
    """An entry that cannot be read stops the run, and names the file and the entry."""
    suite.check(HOLDS)
    suite.known(**fields)
    ran = suite.run()

    assert ran.ret == 4
    assert suite.log() == []
    assert "known_failures.toml: failure 1: " in ran.printed
    assert says in ran.printed


@pytest.mark.parametrize("content", ["[[failure]\n", "[[failures]]\n"])
def test_malformed_file(suite, content):
    """So does a file that is no TOML, or holds something else."""
    suite.check(HOLDS)
    suite.known()
    suite.path.joinpath("ci/known_failures.toml").write_text(content)
    ran = suite.run()

    assert ran.ret == 4
    assert "known_failures.toml: " in ran.printed
