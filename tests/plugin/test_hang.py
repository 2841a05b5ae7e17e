"""An engine that hangs: a FAIL with a stack dump, and a run that goes on and ends."""

import re


def test_hang(suite):
    """A call that waits for ever is a FAIL once the deadline has passed, with the engine's own line among the stacks; the run goes on.

    The second test swallows the interrupt and leaves a thread behind that Python would wait for: the process ends all the same.
    """
    suite.check("engine.hang()", "hangs")
    suite.check("engine.hang_stubbornly()\njudge.equal(1, 1, 'one')", "stubborn")
    suite.check("judge.equal(engine.echo(1), 1, 'echo')", "next")
    ran = suite.spawn("--deadline", "0.5")

    assert ran.ret == 1
    assert list(ran.verdicts().values()) == ["FAIL", "FAIL", "PASS"]
    assert ran.properties()["test_hangs[connector/toy@cpu]"]["reason"] == "DEADLINE MISSED: hang() did not return within 0.5 s"
    assert (
        ran.properties()["test_stubborn[connector/toy@cpu]"]["reason"] == "DEADLINE MISSED: hang_stubbornly() did not return within 0.5 s"
    )
    assert len(re.findall(r'toy\.py", line \d+ in hang$', section(ran.stdout), re.MULTILINE)) == 2
    assert "2 failed, 1 passed" in ran.stdout
    assert suite.log() == [
        f"{word} connector/toy" if word != "hangs" else word for word in ["boot", "hangs", "close"] * 2 + ["boot", "close"]
    ]
    assert ran.session()["boots"] == {"connector/toy@cpu": 3}


def section(printed):
    """What is printed under the headings of the stack dumps."""
    parts = re.split(r"^-+ where every thread stood -+$", printed, flags=re.MULTILINE)[1:]
    return "\n".join(part.partition("\n____")[0] for part in parts)


def test_no_hang(suite):
    """A call that returns in time says nothing of deadlines."""
    suite.check("judge.equal(engine.echo(1), 1, 'echo')")
    ran = suite.run("--deadline", "0.5")

    assert ran.verdict == "PASS"
    assert "where every thread stood" not in ran.stdout


def test_hang_in_the_test_itself_is_no_engine_call(suite):
    """The deadline is for engine calls: a test may compute for longer."""
    suite.check("import time\ntime.sleep(0.3)\njudge.equal(engine.echo(1), 1, 'echo')")

    assert suite.run("--deadline", "0.1").verdict == "PASS"
