"""An engine during a run: booted once, shared, watched for leaks, rebooted after a failure, and closed whatever happens."""

import re
import signal

import pytest

HOLDS = "judge.equal(engine.echo(1), 1, 'echo')"
BOOT, CLOSE = "boot connector/toy", "close connector/toy"


def test_one_boot(suite):
    """All tests share one boot, which is closed once, at the end."""
    for name in ("one", "two", "three"):
        suite.check(HOLDS, name)
    ran = suite.run()

    assert ran.counts() == {"PASS": 3}
    assert suite.log() == [BOOT, CLOSE]
    assert ran.session()["boots"] == {"connector/toy@cpu": 1}


def test_engines_one_after_the_other(suite):
    """Two engines are never up together, however the tests are written."""
    suite.check(HOLDS, "one")
    suite.check(HOLDS, "two")
    ran = suite.run("--adapter", "toy:Other", "--engine", "connector/other")

    assert ran.counts() == {"PASS": 4}
    assert suite.log() == [BOOT, CLOSE, "boot connector/other", "close connector/other"]


@pytest.mark.parametrize("body", ["engine.fail()", "assert engine.echo(1) == 2", "engine.echo(1)", "{}['missing']"])
def test_reboot_after_a_failure(suite, body):
    """After anything but a PASS the next test gets a new engine: nobody knows what became of the old one."""
    suite.check(body, "breaks")
    suite.check(HOLDS, "next")
    ran = suite.run()

    assert suite.log() == [BOOT, CLOSE] * 2
    assert ran.session()["boots"] == {"connector/toy@cpu": 2}
    assert ran.verdicts()["test_next[connector/toy@cpu]"] == "PASS"


def test_leak(suite):
    """What the engine holds after a test that it did not hold before is a FAIL that names the counter; the next test gets a new engine."""
    suite.check(f"{HOLDS}\nengine.hold(3)", "leaks")
    suite.check(HOLDS, "next")
    ran = suite.run()

    assert ran.ret == 1
    assert ran.verdicts() == {"test_leaks[connector/toy@cpu]": "FAIL", "test_next[connector/toy@cpu]": "PASS"}
    assert "LEAK  connector/toy@cpu  connector.toy.leaks" in ran.stdout
    assert re.search(r"^got +engine holds pages 3 after the test$", ran.stdout, re.MULTILINE)
    assert re.search(r"^expected +pages 0, as before it$", ran.stdout, re.MULTILINE)
    assert suite.log() == [BOOT, CLOSE] * 2


def test_a_leak_is_no_pass_beside(suite):
    """A test that leaks is counted once, as failed."""
    suite.check(f"{HOLDS}\nengine.hold(3)")
    ran = suite.run()

    assert "1 failed in" in ran.stdout
    assert "passed" not in ran.stdout


def test_hidden_leak(suite):
    """A counter that falls below where it was is a leak too, of somebody else's."""
    suite.check(f"{HOLDS}\nengine.hold(-1)")

    assert suite.run().only()["reason"] == "LEAK: engine holds pages -1 after the test"


def test_given_back(suite):
    """What a test takes and gives back is no leak."""
    suite.check(f"engine.hold(3)\n{HOLDS}\nengine.hold(-3)")

    assert suite.run().verdict == "PASS"


def test_given_back_by_a_fixture(suite):
    """A fixture on the engine may hold things until it ends."""
    suite.write("""
        @pytest.fixture
        def held(engine):
            engine.hold(3)
            yield
            engine.hold(-3)
    """)
    suite.check(HOLDS, takes="engine, judge, held")

    assert suite.run().verdict == "PASS"


def test_watched_leak(suite):
    """What a test asks to be watched must be empty when its body ends, and is named."""
    suite.check(f"watch('the sender', engine)\n{HOLDS}\nengine.hold(2)", takes="engine, judge, watch")
    ran = suite.run()

    assert (ran.verdict, ran.ret) == ("FAIL", 1)
    assert ran.only()["reason"] == "LEAK: the sender holds pages 2 after the test"


def test_watched_and_given_back(suite):
    """What is watched and let go of is a PASS."""
    suite.check(f"watch('the sender', engine).hold(2)\n{HOLDS}\nengine.hold(-2)", takes="engine, judge, watch")

    assert suite.run().verdict == "PASS"


def test_a_failure_that_leaks(suite):
    """A test that fails and leaks keeps the verdict and the words of its failure; its engine is gone, and not asked any more."""
    suite.check("engine.hold(1)\nengine.fail()")
    ran = suite.run()

    assert ran.only()["reason"].startswith("ENGINE RAISED: RuntimeError: out of pages")
    assert "1 failed in" in ran.stdout
    assert "failed too" not in ran.stdout


def test_two_failures(suite):
    """What breaks while a failed test is torn down is told beside the failure, and counts no second time."""
    suite.write("""
        @pytest.fixture
        def broken():
            yield
            raise KeyError("missing")
    """)
    suite.check("engine.fail()", takes="engine, judge, broken")
    ran = suite.run()

    assert ran.only()["reason"].startswith("ENGINE RAISED")
    assert "1 failed in" in ran.stdout
    assert "teardown failed too" in ran.stdout
    assert "KeyError: 'missing'" in ran.stdout


def test_fresh_engine(suite):
    """A fresh engine is booted for its test alone, behind the tests that share one, wherever it is written."""
    suite.check(HOLDS, "before")
    suite.check("judge.equal(fresh_engine.count(), 1, 'count')", "fresh", takes="fresh_engine, judge")
    suite.check(HOLDS, "after")
    ran = suite.run()

    assert ran.counts() == {"PASS": 3}
    assert suite.log() == [BOOT, CLOSE] * 2


def test_build_engine(suite):
    """Engines that a test builds have the options it gives, beside the engine's own, and are closed at its end."""
    suite.check(
        """
        loud, plain = build_engine(mode="loud"), build_engine()
        judge.equal([loud.option(), plain.option()], ["loud", "plain"], "options")
        """,
        takes="build_engine, judge",
    )
    ran = suite.run()

    assert ran.verdict == "PASS"
    assert suite.log() == [BOOT, BOOT, CLOSE, CLOSE]


def test_build_engine_and_unknown_option(suite):
    """A test that asks for an option that does not exist is broken itself."""
    suite.check("build_engine(mood='loud')", takes="build_engine, judge")
    ran = suite.run()

    assert ran.verdict == "ERROR"
    assert "connector/toy has no option 'mood'" in ran.stdout


@pytest.mark.parametrize("takes", ["fresh_engine, judge", "build_engine, judge"])
def test_own_engine_is_closed_after_a_failure(suite, takes):
    """An engine of the test's own is closed when the test fails."""
    suite.check(f"{'build_engine()' if 'build' in takes else ''}\nassert not 'this'", takes=takes)

    assert suite.run().verdict == "FAIL"
    assert suite.log() == [BOOT, CLOSE]


@pytest.mark.parametrize("takes", ["fresh_engine, judge", "build_engine, judge"])
def test_own_engine_unavailable(suite, takes):
    """What only a build can know is UNAVAILABLE here too."""
    suite.check("build_engine()" if "build" in takes else "pass", takes=takes)

    assert suite.run(adapter="Gated").verdict == "UNAVAILABLE"


def test_embedded_engine_that_cannot_say_whether_it_runs(suite):
    """Assay is not whole: nothing runs. Of another's engine it is the reason why that one is unavailable."""
    suite.check("judge.equal(1, 1, 'one')")

    ran = suite.run(adapter="Unready")
    assert ran.ret == 4
    assert "connector/unready: available() raised ImportError: no xxhash" in ran.printed
    assert suite.run(adapter="Foreign").verdict == "UNAVAILABLE"


def test_own_engine_does_not_leak(suite):
    """An engine that is closed with its test owes nothing afterwards."""
    suite.check("fresh_engine.hold(1)\njudge.equal(1, 1, 'one')", takes="fresh_engine, judge")

    assert suite.run().verdict == "PASS"


def test_control_is_kept_while_the_engine_is_up(suite):
    """The untouched run is kept for the next check of the same stimulus, and forgotten with its engine."""
    control = """
        ran = []
        judge.controlled("key", lambda: ran.append(1) or {"echo": engine.echo(1)}, lambda: {"echo": engine.echo(1)})
        judge.equal(len(ran), %d, "untouched runs")
    """
    suite.check(control % 2, "first")
    suite.check(control % 1, "second")
    suite.check("engine.fail()", "breaks")
    suite.check(control % 2, "new")
    ran = suite.run()

    assert ran.counts() == {"PASS": 3, "FAIL": 1}


def test_options_reach_the_engine(suite):
    """An option given behind the engine's name is in its configuration, in the test's name and in its record."""
    suite.check("judge.equal(engine.option(), 'loud', 'mode')")
    ran = suite.run("--engine", "connector/toy:mode=loud", engine=None)

    assert ran.verdicts() == {"test_it[connector/toy:mode=loud@cpu]": "PASS"}
    assert ran.only()["options"] == "mode=loud"


def test_the_seed_reaches_the_test(suite):
    """Every generator starts from the run's one seed."""
    suite.check("judge.equal((seed, torch.initial_seed()), (77, 77), 'seeds')", takes="engine, judge, seed")

    assert suite.run("--seed", "77").verdict == "PASS"


def test_close_raises(suite):
    """An engine that cannot be closed fails its own last test, not the next engine's first."""
    suite.check(HOLDS, "one")
    suite.check(HOLDS, "two")
    ran = suite.run("--adapter", "toy:Toy", "--engine", "connector/toy", adapter="Stuck")

    assert ran.ret == 1
    assert list(ran.verdicts().values()) == ["PASS", "FAIL", "PASS", "PASS"]
    assert "ENGINE RAISED  connector/stuck@cpu  connector.toy.two" in ran.stdout
    assert "device lost (from close()" in ran.stdout


def test_close_raises_after_a_failure(suite):
    """A failure stays what it was when the engine cannot be closed after it; that is told beside it."""
    suite.check("assert engine.echo(1) == 2")
    ran = suite.run(adapter="Stuck")

    assert ran.only()["reason"].startswith("ASSERTION FAILED")
    assert "ENGINE RAISED: RuntimeError: device lost" in ran.stdout


def test_close_raises_where_no_test_is_left(suite):
    """In a run that is broken off nobody is left to bear it: it is told, and the session's record is written."""
    suite.check(HOLDS, "one")
    suite.check("pytest.exit('enough')", "two")
    ran = suite.run(adapter="Stuck")

    assert ran.ret == 2
    assert "ENGINE RAISED: RuntimeError: device lost" in ran.stdout
    assert ran.session()["boots"] == {"connector/stuck@cpu": 1}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_interrupt(suite, by):
    """Ctrl-C, or a cancelled CI job, in the middle of an engine call ends the run at once, and the engine is closed."""
    suite.check(HOLDS, "before")
    suite.check("engine.hang()", "hangs")
    code, printed = suite.interrupted(by=by)

    assert code == 2, printed
    assert suite.log() == [BOOT, "hangs", CLOSE]
    assert "KeyboardInterrupt" in printed
    assert "connector.toy.hangs" not in printed


def test_blueprint(suite):
    """A test that builds its engine elsewhere is told how: by name, options, adapter and fault; nothing boots here."""
    suite.check("judge.equal((blueprint.engine, blueprint.adapter, blueprint.fault), ('connector/toy', 'toy:Toy', None), 'it')",
        "names", takes="blueprint, judge")  # fmt: skip
    suite.check("judge.equal(dict(blueprint.config.options), {'mode': 'loud'}, 'it')", "options", takes="blueprint, judge")
    suite.check("judge.equal(blueprint.build(None).option(), 'loud', 'it')", "builds", takes="blueprint, judge")
    ran = suite.run(engine="connector/toy:mode=loud")

    assert ran.counts() == {"PASS": 3}
    assert suite.log() == [BOOT]
