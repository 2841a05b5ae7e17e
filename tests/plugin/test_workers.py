"""The same under `-n 2`: one boot an engine, the same verdicts, the same proof, the same replay."""

import shlex

HOLDS = "judge.equal(engine.echo(1), 1, 'echo')"
BREAKS = "judge.equal(engine.echo(1), 2, 'echo')"
TWO = ["--adapter", "toy:Other", "--engine", "connector/other"]


def test_two_engines(suite):
    """Each engine is booted by one worker, once, and closed; verdicts are those of a run without workers."""
    for name in ("one", "two", "three", "four"):
        suite.check(HOLDS, name)
    suite.check("engine.echo(1)", "vacuous")
    alone = suite.run(*TWO)
    (suite.path / "toy.log").unlink()
    ran = suite.run(*TWO, "-n", "2")

    assert ran.ret == alone.ret == 1
    assert ran.verdicts() == alone.verdicts()
    assert sorted(suite.log()) == ["boot connector/other", "boot connector/toy", "close connector/other", "close connector/toy"]
    assert ran.session()["boots"] == alone.session()["boots"] == {"connector/other@cpu": 1, "connector/toy@cpu": 1}


def test_nothing_judged(suite):
    """A run that skipped everything is no success here either."""
    suite.check(HOLDS, before="@requires(ConnectorCap.MANY_READS)")

    assert suite.run("-n", "1", adapter="Never").ret == 5


def test_proof(suite):
    """The score is the same, with its survivor and its unproved claim, and stands in the last line."""
    suite.check(HOLDS, "first")
    suite.check(HOLDS, "second")
    suite.check(HOLDS, "third")
    suite.plant("wrong", "half", "harmless", "canary", "null")
    alone, ran = suite.run("--prove"), suite.run("--prove", "-n", "2")

    assert ran.ret == alone.ret == 1
    assert ran.verdicts() == alone.verdicts()
    assert [line for line in ran.stdout.splitlines() if line.startswith(("survived: ", "UNPROVED: ", "faults ", "null ", "canaries "))] == [
        "survived: connector/harmless: not caught by connector.toy.first, connector.toy.second",
        "UNPROVED: connector.toy.third: no fault and no wrong input made it fail",
        "null faults unmoved 1 of 1",
        "canaries failed 1 of 1",
        "faults caught 2 of 3",
    ]
    assert ran.stdout.rstrip().endswith("\nfaults caught 2 of 3")


def test_replay(suite):
    """A failure that a worker found is printed as without workers, and its replay command needs none."""
    suite.check(BREAKS)
    ran = suite.run("-n", "1", "--engine", "connector/toy:mode=loud", engine=None)
    again = suite.collect(suite.pytester.runpytest_inprocess, *shlex.split(ran.replay())[1:])

    # xdist puts the worker's name in between.
    assert [line for line in ran.shown() if not line.startswith("[gw")] == again.shown()
    assert "connector/toy:mode=loud" in ran.replay()


def test_hang(suite):
    """A hang in a worker is a FAIL with its stack dump, and the worker goes on."""
    suite.check("engine.hang()", "hangs")
    suite.check(HOLDS, "next")
    ran = suite.run("-n", "1", "--deadline", "0.5")

    assert ran.ret == 1
    assert list(ran.verdicts().values()) == ["FAIL", "PASS"]
    assert "where every thread stood" in ran.stdout


def test_a_worker_that_dies(suite):
    """An engine that takes its process down fails the run and is named, once; the tests that are left run, each once, and the run ends."""
    suite.check(HOLDS, "before")
    suite.check(f"import os\nengine.name == 'connector/toy' and os._exit(7)\n{HOLDS}", "dies")
    suite.check(HOLDS, "next")
    ran = suite.run(*TWO, "--adapter", "toy:Older", "--engine", "connector/older", "-n", "2")

    assert ran.ret == 1
    assert ran.stdout.count("crashed while running 'suites/connector/test_toy.py::test_dies[connector/toy@cpu]'") == 1
    assert ran.counts() == {"PASS": 8}
    assert "1 failed, 8 passed" in ran.stdout


def test_a_claim_made_twice(suite):
    """What stops a run without workers stops it with them, in the same words."""
    suite.check(HOLDS)
    suite.write('@claim("connector.toy.it", source="toy")\ndef test_again(engine):\n    """The toy does it again."""')
    ran = suite.run("-n", "1")

    assert ran.ret != 0
    assert "claim connector.toy.it is made by" in ran.printed
