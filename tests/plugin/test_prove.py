"""Prove mode: the score, survivors, unproved claims, false alarms, and what is no catch."""

import pytest

HOLDS = "judge.equal(engine.echo(1), 1, 'echo')"
BLIND = "judge.equal(engine.options['mode'], 'plain', 'mode')"


def last_line(ran):
    return ran.stdout.rstrip().splitlines()[-1]


@pytest.fixture
def proof(suite):
    """Two claims whose tests see what the toy echoes."""
    suite.check(HOLDS, "first")
    suite.check(HOLDS, "second")
    return suite


def test_all_caught(proof):
    """Every fault is caught by every claim that it names, and no claim alarms without one: the last line is the score."""
    proof.plant("wrong", "input", "canary", "null")
    ran = proof.run("--prove")

    assert ran.ret == 0
    assert last_line(ran) == "faults caught 1 of 1"
    for line in ("null faults unmoved 1 of 1", "canaries failed 1 of 1", "wrong inputs failed 1 of 1", "8 passed"):
        assert line in ran.stdout
    assert ran.counts() == {"FAIL": 6, "PASS": 2}


def test_survivor(proof):
    """A fault that shows nowhere survives: the run fails, and names it and the claims that missed it."""
    proof.plant("wrong", "harmless", "null")
    ran = proof.run("--prove")

    assert ran.ret == 1
    assert last_line(ran) == "faults caught 1 of 2"
    assert "survived: connector/harmless: not caught by connector.toy.first, connector.toy.second" in ran.stdout
    assert "SURVIVED  connector/harmless  connector.toy.first: PASS\nfault     A fault that shows nowhere.\n" in ran.stdout


def test_half_a_survivor(suite):
    """A fault that one of its claims misses is not caught."""
    suite.check(HOLDS, "first")
    suite.check(BLIND, "second")
    suite.plant("wrong", "null")
    ran = suite.run("--prove")

    assert ran.ret == 1
    assert last_line(ran) == "faults caught 0 of 1"
    assert "survived: connector/wrong: not caught by connector.toy.second" in ran.stdout


def test_a_claim_that_no_test_makes(proof):
    """A fault whose claim nobody makes fails the proof, with the nearest that somebody does."""
    proof.plant("wrong", "uncollected", "null")
    ran = proof.run("--prove")

    assert ran.ret == 1
    assert "connector/uncollected names an unknown claim 'connector.toy.gone'; nearest: connector.toy" in ran.stdout
    assert last_line(ran) == "faults caught 1 of 1, 1 not run"


def test_unproved(proof):
    """A MUST claim that nothing makes fail is UNPROVED, though every fault is caught."""
    proof.plant("half", "null")
    ran = proof.run("--prove")

    assert ran.ret == 1
    assert "UNPROVED: connector.toy.second: no fault and no wrong input made it fail" in ran.stdout
    assert "UNPROVED: connector.toy.first" not in ran.stdout
    assert last_line(ran) == "faults caught 1 of 1"


def test_unproved_although_unsupported(suite):
    """A MUST claim that the reference engine does not offer is unproved too."""
    suite.check(HOLDS, "first")
    suite.check(HOLDS, "second", before="@requires(ConnectorCap.MANY_READS)")
    suite.plant("half", "null")
    ran = suite.run("--prove", adapter="Never")

    assert ran.ret == 1
    assert "UNPROVED: connector.toy.second" in ran.stdout


def test_should_needs_no_proof(suite):
    """A SHOULD claim may go without."""
    suite.check(HOLDS, "first")
    suite.write(
        f'@claim("connector.toy.quick", level=Level.SHOULD, source="toy")\ndef test_quick(engine, judge):\n    """Quick."""\n    {HOLDS}'
    )
    suite.plant("half", "null")
    ran = suite.run("--prove")

    assert ran.ret == 0
    assert "UNPROVED" not in ran.stdout


def test_part_of_a_proof(proof):
    """With a glob the faults that match are planted, with the null fault; claims that they do not name need no proof there."""
    proof.plant("half", "harmless", "null")
    ran = proof.run("--prove", "connector/ha[l]*")

    assert ran.ret == 0
    assert last_line(ran) == "faults caught 1 of 1"
    assert "null faults unmoved 1 of 1" in ran.stdout
    assert "harmless" not in ran.stdout


def test_false_alarm(proof):
    """A check that alarms under a fault that is none fails the proof."""
    proof.plant("wrong", "alarming")
    ran = proof.run("--prove")

    assert ran.ret == 1
    assert "FALSE ALARM  connector/alarming  connector.toy.first: FAIL" in ran.stdout
    assert "survived: connector/alarming: alarmed connector.toy.first, connector.toy.second" in ran.stdout
    assert "null faults unmoved 0 of 1" in ran.stdout


@pytest.mark.parametrize(
    "body",
    ["{1: 1}[engine.echo(1)]", "engine.echo(1) == 1 and judge.equal(1, 1, 'one')", "pytest.skip('never mind')"],
    ids=["error", "vacuous", "skip"],
)
def test_no_catch(suite, body):
    """A test that breaks, compares nothing or skips under a fault has not caught it."""
    suite.check(body, "first")
    suite.plant("half", "null")
    ran = suite.run("--prove")

    assert ran.ret == 1
    assert last_line(ran) == "faults caught 0 of 1"
    assert "SURVIVED  connector/half  connector.toy.first: " in ran.stdout


def test_an_error_is_shown(suite):
    """Why a test broke under a fault is shown."""
    suite.check("{1: 1}[engine.echo(1)]\njudge.equal(1, 1, 'one')", "first")
    suite.plant("half", "null")

    assert "KeyError: 2" in suite.run("--prove").stdout


def test_caught_by_a_leak(suite):
    """A fault that only leaves something behind is caught once the test has ended."""
    suite.check(HOLDS, "first")
    with (suite.path / "toy.py").open("a") as module:
        module.write(
            '\n@plant("leaky", CLAIMS[0])\ndef leaky(original, engine, value):\n'
            '    """A page is kept."""\n    engine.pages += 1\n    return original(engine, value)\n'
        )
    suite.plant("leaky", "null")
    ran = suite.run("--prove")

    assert ran.ret == 0
    assert last_line(ran) == "faults caught 1 of 1"


def test_caught_in_spite_of_a_known_failure(proof):
    """An entry of the known failures excuses the engine, not the faults."""
    proof.known(claim="connector.toy.first")
    proof.plant("wrong", "null")
    ran = proof.run("--prove")

    assert ran.ret == 0
    assert last_line(ran) == "faults caught 1 of 1"


def test_nothing_planted(suite):
    """A proof that collects no test with a fault proves nothing, and says so."""
    suite.write("def test_plain():\n    pass")
    suite.plant("wrong", "null")
    ran = suite.run("--prove")

    assert ran.ret == 1
    assert "nothing was proved" in ran.stdout


def test_faults_go_into_references_only(suite):
    """An engine that is no reference cannot be named beside a fault."""
    suite.check(HOLDS, "first")
    with (suite.path / "toy.py").open("a") as module:
        module.write('\nReleased = variant("released", reference=False)\n')
    suite.plant("wrong", "null")
    ran = suite.run("--prove", adapter="Released")

    assert ran.ret == 4
    assert "--engine connector/released: faults are planted in reference engines only" in ran.printed


def test_fault_by_hand(proof):
    """--fault alone shows how the suite fails: every claim runs, named by the fault or not, and verdicts stand as they are."""
    proof.check(BLIND, "blind")
    proof.plant("wrong", "null")
    ran = proof.run("--fault", "connector/wrong")

    assert ran.ret == 1
    assert list(ran.verdicts().values()) == ["FAIL", "FAIL", "PASS"]
    assert "WRONG ANSWER  connector/toy@cpu  connector.toy.first  fault connector/wrong" in ran.stdout
    assert "proof" not in ran.stdout


def test_the_fault_is_gone_afterwards(suite):
    """The null fault's tests run on a whole engine although another fault was planted before."""
    suite.check(HOLDS, "first")
    suite.plant("wrong", "half", "input", "null")
    ran = suite.run("--prove")

    assert ran.verdicts()["test_first[connector/toy@cpu~null]"] == "PASS"
    assert suite.log().count("boot connector/toy") == len(ran.verdicts())


def test_one_engine_per_fault(proof):
    """A fault's tests share a boot for as long as they catch it, and no engine outlives its fault."""
    proof.plant("null", "alarming")
    proof.run("--prove")

    assert proof.log().count("boot connector/toy") == proof.log().count("close connector/toy")


def test_part_of_the_suites(proof):
    """Faults whose claims were left out are neither caught nor survive; what was run is told as ever."""
    proof.plant("wrong", "half", "null")
    ran = proof.run("--prove", "-k", "test_first")

    assert "survived" not in ran.stdout
    assert last_line(ran) == "faults caught 1 of 1, 1 not run"
    assert last_line(proof.run("--prove")) == "faults caught 2 of 2"


def test_a_mistake_in_a_fault_is_no_catch(proof):
    """A fault that cannot even run breaks its test, but by no doing of the engine."""
    proof.plant("mistaken", "null")
    ran = proof.run("--prove")

    assert ran.ret == 1
    assert "connector/mistaken: the fault itself raised ZeroDivisionError" in ran.stdout
    assert last_line(ran) == "faults caught 0 of 1"


def test_a_fault_that_raises_on_purpose_is_caught(proof):
    """Where raising is the misbehaviour, the fault says so."""
    proof.plant("raising", "null")
    ran = proof.run("--prove")

    assert last_line(ran) == "faults caught 1 of 1"


def test_one_profile_is_proved(proof):
    """A fault is planted at the smallest size that runs here; the engine as it is runs in every profile."""
    proof.plant("wrong", "null")

    assert proof.run(adapter="Twice").counts() == {"PASS": 4}
    assert proof.run("--prove", adapter="Twice").counts() == {"FAIL": 2, "PASS": 2}
