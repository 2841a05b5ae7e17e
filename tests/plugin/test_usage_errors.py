"""What does not exist is a usage error that names the nearest thing that does; what a suite lacks is an error that says what to write."""

import pytest

HOLDS = "judge.equal(engine.echo(1), 1, 'echo')"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--engine", "connector/tay"], "unknown engine 'connector/tay'; nearest: connector/toy"),
        (["--engine", "conector/*"], "unknown engine 'conector/*'"),
        (["--engine", "connector/toy:moode=loud"], "connector/toy: unknown option 'moode'; nearest: mode"),
        (["--engine", "connector/toy:mode=lout"], "connector/toy, option mode: unknown value 'lout'; nearest: loud"),
        (["--engine", "connector/toy:mode"], "option 'mode': write option=value"),
        (["--fault", "transfer/layer-ordre"], "unknown fault 'transfer/layer-ordre'; nearest: transfer/layer-order"),
        (["--prove", "transfer/layer-ordre*"], "unknown fault 'transfer/layer-ordre*'; nearest: transfer/layer-order"),
        (["--prove", "--fault", "transfer/layer-order"], "--prove plants every fault, --fault one"),
        (["--set", "transfer.layer=3"], "unknown constant 'layer'; nearest: layers"),
        (["--set", "transfers.layers=3"], "unknown kind 'transfers'; nearest: transfer"),
        (["--set", "transfer.layers=three"], "--set 'transfer.layers=three': "),
        (["--set", "transfer.layers"], "write kind.name=value"),
        (["-m", "cpuu"], "unknown mark 'cpuu'; nearest: cpu"),
        (["-m", "cpu and not slwo"], "unknown mark 'slwo'; nearest: slow"),
        (["--deadline", "0"], "--deadline 0.0: give seconds above 0"),
        (["--lease-deadline", "0"], "--lease-deadline 0.0: give seconds above 0"),
        (["--adapter", "toy"], "--adapter 'toy': write module:attr"),
        (["--adapter", "toi:Toy"], "--adapter 'toi:Toy': cannot import toi"),
        (["--adapter", "toy:Oter"], "unknown attribute 'Oter'; nearest: Other"),
        (["--adapter", "toy:NoSpec"], "--adapter toy:NoSpec: give the adapter a class attribute spec"),
        (["--adapter", "toy:Engine"], "--adapter toy:Engine: give the adapter a class attribute spec"),
        (["--adapter", "toy:Toy"], "engine connector/toy is described twice"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_unknown_name(suite, args, says):
    """Nothing runs; the exit code is that of a usage error, and the words say what to write instead."""
    suite.check(HOLDS)
    ran = suite.run(*args, engine=None)

    assert ran.ret == 4
    assert says in ran.printed
    assert suite.log() == []
    assert "Traceback" not in ran.printed


@pytest.mark.parametrize("mark", ["cpu", "connector and cpu", "not slow", "core_model or cpu"])
def test_known_marks(suite, mark):
    """Marks that exist select, by the engine's profile and kind."""
    suite.check(HOLDS)

    assert suite.run("-m", mark).verdict == "PASS"


def test_known_mark_of_another_profile(suite):
    """A mark of a profile that is not there selects nothing, which is no success."""
    suite.check(HOLDS)

    assert suite.run("-m", "slow").ret == 5


CLAIM = '@claim("connector.toy.it", source="toy")\n'
TEST = 'def test_it(engine):\n    """The toy does it."""'
ODD = 'import enum\nclass Odd(enum.Enum):\n    MANY = "many_raeds"\n'
EXCUSES = "declare a capability and ask for it with @requires, or add to ci/known_failures.toml"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (TEST, "test_it: no @claim; every test of a suite carries exactly one"),
        (f"{CLAIM}def test_it(engine): ...", "test_it: no docstring; its first line is the sentence of connector.toy.it"),
        (
            f'{CLAIM}@claim("connector.toy.two", source="toy")\n{TEST}',
            "@claim stands twice (connector.toy.two and connector.toy.it); keep one",
        ),
        (f'@claim("connector.it", source="toy")\n{TEST}', "claim id 'connector.it': write kind.topic.name"),
        (f"{ODD}{CLAIM}@requires(Odd.MANY)\n{TEST}", "unknown connector capability 'many_raeds'; nearest: many_reads"),
        (f"{CLAIM}@pytest.mark.cpuu\n{TEST}", "'cpuu' not found in `markers` configuration option"),
        (f'{CLAIM}@pytest.mark.skip(reason="no")\n{TEST}', f"test_it: no skip here; {EXCUSES}"),
        (f'{CLAIM}@pytest.mark.skipif(True, reason="no")\n{TEST}', f"test_it: no skipif here; {EXCUSES}"),
        (f"{CLAIM}@pytest.mark.xfail\n{TEST}", f"test_it: no xfail here; {EXCUSES}"),
    ],
    ids=["no claim", "no docstring", "two claims", "claim id", "capability", "mark", "skip", "skipif", "xfail"],
)
def test_malformed_test(suite, source, says):
    """A test that a suite cannot hold stops the run before anything is judged, and says what to write."""
    suite.check(HOLDS, "good")
    suite.write(source)
    ran = suite.run()

    assert ran.ret in (2, 4)
    assert says in ran.printed
    assert suite.log() == []
    assert "harness/pytest_plugin" not in ran.printed


def test_claim_made_twice(suite):
    """Two tests of one claim stop the run, and both are named."""
    suite.check(HOLDS)
    suite.write('@claim("connector.toy.it", source="toy")\ndef test_again(engine):\n    """The toy does it again."""')
    ran = suite.run()

    assert ran.ret in (2, 4)
    assert suite.log() == []
    assert (
        "claim connector.toy.it is made by suites/connector/test_toy.py::test_it and by suites/connector/test_toy.py::test_again"
        in ran.printed
    )


def test_kind_by_mark(suite):
    """A file in any folder belongs to the kind that it is marked with."""
    suite.check(HOLDS)
    suite.write("pytestmark = pytest.mark.connector")
    (suite.path / "suites/connector").rename(suite.path / "suites/anything")

    assert suite.run().verdict == "PASS"


def test_no_kind(suite):
    """A file in a folder of no kind stops the run."""
    suite.check(HOLDS)
    (suite.path / "suites/connector").rename(suite.path / "suites/conector")
    ran = suite.run()

    assert ran.ret in (2, 4)
    assert "unknown kind 'conector'; nearest: connector" in ran.printed


def test_unknown_mark_of_a_profile(suite):
    """An engine whose profile carries an unknown mark stops the run."""
    suite.check(HOLDS)
    with (suite.path / "toy.py").open("a") as module:
        module.write('\nOdd = variant("odd", profiles={"cpu": {"marks": ["omnni"]}})\n')
    ran = suite.run(adapter="Odd")

    assert ran.ret in (2, 4)
    assert "connector/odd: profiles.cpu: unknown mark 'omnni'; nearest: omni" in ran.printed


def test_a_test_without_an_engine(suite):
    """A test that asks for no engine is an ordinary one, and needs no claim."""
    suite.write("def test_plain():\n    pass")
    ran = suite.run()

    assert ran.ret == 0
    assert ran.verdicts() == {}
