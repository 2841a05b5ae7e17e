"""`--plan`, `--list-engines` and `--list-claims`: they tell, and run nothing."""

import pytest

HOLDS = "judge.equal(engine.echo(1), 1, 'echo')"
MANY_READS = "@requires(ConnectorCap.MANY_READS)"


def test_plan(suite):
    """How many tests would run and skip, why, and for how long; the engine is not booted."""
    suite.check(HOLDS, "one")
    suite.check(HOLDS, "two")
    suite.check(HOLDS, "three", before=MANY_READS)
    suite.write('register_ci(est_time=90, suite="toy")\nregister_cuda_ci(est_time=6000, suite="toy")')
    ran = suite.run("--plan", adapter="Never")

    assert ran.ret == 0
    assert "connector/never@cpu: 2 run, 1 skip; about 1.5 min\n    skip 1: many_reads: one reader only\n" in ran.stdout
    assert "3 tests, about 1.5 min" in ran.stdout
    assert suite.log() == []
    assert ran.verdicts() == {}


def test_plan_of_cards(suite, monkeypatch):
    """Where a profile takes cards, its GPU memory is told, and its own time."""
    monkeypatch.setattr("harness.core.spec.shortage", lambda *_: None)
    suite.check(HOLDS)
    suite.write('register_ci(est_time=60, suite="toy")\nregister_cuda_ci(est_time=600, suite="toy")')
    ran = suite.run("--plan", adapter="Big")

    assert "connector/big@cpu: 1 run, 0 skip; about 1.0 min\n" in ran.stdout
    assert "connector/big@gpu: 1 run, 0 skip; about 10.0 min, 3 GPU GiB\n" in ran.stdout
    assert "2 tests, about 11.0 min" in ran.stdout


def test_plan_where_cards_are_missing(suite, monkeypatch):
    """A profile that this machine has no cards for is told once, with the reason."""
    monkeypatch.setattr("harness.core.spec.shortage", lambda platform, *_: platform and "no cards at all")
    suite.check(HOLDS)
    ran = suite.run("--plan", "--engine", "connector/b*", adapter="Big", engine=None)

    assert "connector/big@gpu: UNAVAILABLE: no cards at all" in ran.stdout
    assert "1 tests, about" in ran.stdout


def test_plan_of_an_unavailable_engine_by_name(suite):
    """An engine that is named and cannot run here counts as skips, with its reason."""
    suite.check(HOLDS)
    ran = suite.run("--plan", adapter="Missing")

    assert "connector/missing@cpu: 0 run, 1 skip; about 0.0 min\n    skip 1: no cards here\n" in ran.stdout


def test_plan_of_a_proof(suite):
    """The plan of a proof counts each fault's tests."""
    suite.plant("wrong", "null")
    suite.check(HOLDS, "first")
    suite.check(HOLDS, "second")
    ran = suite.run("--plan", "--prove")

    assert "connector/toy@cpu~wrong: 2 run" in ran.stdout
    assert "4 tests" in ran.stdout
    assert suite.log() == []


@pytest.mark.parametrize("adapter", ["Toy", "Missing"])
def test_list_engines(suite, adapter):
    """Every engine, built in or brought, with what it offers and whether it can run here."""
    ran = suite.run("--list-engines", adapter=adapter, engine=None)

    assert ran.ret == 0
    assert "transfer/reference" in ran.stdout
    row = next(line for line in ran.stdout.splitlines() if line.startswith(f"connector/{adapter.lower()} "))
    assert ("no cards here" if adapter == "Missing" else "available") in row
    assert "mode=plain|loud|with space" in row


def test_list_engines_and_what_they_lack(suite):
    """What an engine does not offer is listed with its reason."""
    ran = suite.run("--list-engines", adapter="Never", engine=None)

    assert "one reader only" in ran.stdout


def test_list_claims(suite):
    """Every claim below the paths given, with its level, sentence and source; nothing is collected or run."""
    suite.check(HOLDS, doc="The toy says what it is told.", before=MANY_READS)
    suite.write(
        '@claim("connector.toy.should", level=Level.SHOULD, source="the other toy")\ndef test_should(engine):\n    """The toy is quick."""'
    )
    ran = suite.run("--list-claims")
    rows = {line.split()[0]: line for line in ran.stdout.splitlines() if line.startswith("connector.toy")}

    assert ran.ret == 0
    assert rows.keys() == {"connector.toy.it", "connector.toy.should"}
    assert "MUST" in rows["connector.toy.it"]
    assert "The toy says what it is told." in rows["connector.toy.it"]
    assert "many_reads" in rows["connector.toy.it"]
    assert "SHOULD" in rows["connector.toy.should"]
    assert "the other toy" in rows["connector.toy.should"]
    assert suite.log() == []


def test_list_claims_of_a_malformed_suite(suite):
    """A test without a claim is a usage error here too."""
    suite.write('def test_it(engine):\n    """The toy does it."""')
    ran = suite.run("--list-claims")

    assert ran.ret == 4
    assert "test_it carries 0 @claim; write exactly one" in ran.printed


TWO_CARDS = "@pytest.mark.gpu\n@pytest.mark.cuda\n@pytest.mark.H100\n@pytest.mark.cards_2"
"""What `hardware_marks(res={"cuda": "H100"}, num_cards=2)` stands for, on one test."""


def listed(ran):
    return sorted(line.partition("::")[2] for line in ran.stdout.splitlines() if "::" in line)


@pytest.fixture
def one_card(monkeypatch):
    """A machine that gives one card of every class."""
    monkeypatch.setattr("harness.core.spec.shortage", lambda platform, card_class, n: "one card here" if platform and n > 1 else None)


def test_a_test_for_cards_is_judged_on_cards_only(suite, monkeypatch):
    """One marked for a platform is an item in that platform's profiles alone; its twin is one in each."""
    monkeypatch.setattr("harness.core.spec.shortage", lambda *_: None)
    suite.check(HOLDS, "everywhere")
    suite.check(HOLDS, "on_cards", before=TWO_CARDS)

    assert listed(suite.run("--collect-only", "-q", adapter="Big")) == [
        "test_everywhere[connector/big@cpu]",
        "test_everywhere[connector/big@gpu]",
        "test_on_cards[connector/big@gpu]",
    ]


@pytest.mark.parametrize(("asked", "test"), [("cards_1", "everywhere"), ("cards_2", "on_cards")])
def test_a_tests_own_cards_stand_in_place_of_the_profiles(suite, monkeypatch, asked, test):
    """It carries their mark, and not that of the engine's profile."""
    monkeypatch.setattr("harness.core.spec.shortage", lambda *_: None)
    suite.check(HOLDS, "everywhere")
    suite.check(HOLDS, "on_cards", before=TWO_CARDS)

    assert listed(suite.run("--collect-only", "-q", "-m", asked, adapter="Big")) == [f"test_{test}[connector/big@gpu]"]


def test_hardware_in_halves(suite):
    """A platform without a class and a number is an error that says how to write it."""
    suite.check(HOLDS, before="@pytest.mark.cuda")
    ran = suite.run()

    assert ran.ret != 0
    assert "test_it: marks cuda: a test that needs hardware takes hardware_marks(...), once" in ran.printed


def test_a_shortage_of_the_tests_own_cards(suite, one_card):
    """An engine that runs here, but not on so many cards, is told of, test by test; the tests of one card run."""
    suite.check(HOLDS, "everywhere")
    suite.check(HOLDS, "on_cards", before=TWO_CARDS)
    ran = suite.run("-m", "not cpu", "--plan", adapter="Big", engine="*/big")

    assert "connector/big@gpu: 1 run, 0 skip; about 0.0 min, 3 GPU GiB" in ran.stdout
    assert "connector/big@gpu on 2 cards: 0 run, 1 skip; about 0.0 min, 3 GPU GiB" in ran.stdout
    assert "    skip 1: one card here" in ran.stdout
