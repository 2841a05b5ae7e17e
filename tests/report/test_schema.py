"""The published schema of a run's lines, against what a run writes and against what it must not write."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest

from harness.pytest_plugin.record import SCHEMA
from harness.report.runs import SCHEMAS, read_run

PUBLISHED = Path(__file__).parents[2] / f"harness/report/schema/run-{SCHEMA}.json"
RUN = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
FIGURES = RUN.evolve(schema={"$ref": "#/$defs/figures", "$defs": RUN.schema["$defs"]})


def lines(ran):
    return [json.loads(line) for line in ran.log.read_text().splitlines()]


@pytest.fixture
def toy(suite):
    """A suite with a figure that has a series, an unsupported claim and a known failure."""
    suite.check("judge.equal(engine.echo(1), 1, 'echo')\njudge.figure('hits', 3, 'blocks', bound=4)", "holds")
    suite.check("judge.equal(engine.echo(1), 2, 'echo')", "known")
    suite.check("pass", "unsupported", before="@requires(ConnectorCap.MANY_READS, value=3)")
    suite.known(claim="connector.toy.known")
    return suite


def test_the_schema_is_one():
    """It is a schema itself, and there is one for what is written today."""
    jsonschema.Draft202012Validator.check_schema(RUN.schema)

    assert max(SCHEMAS) == SCHEMA


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_keeps_to_it(toy, workers):
    """Every line of a run, its figures too, with and without workers."""
    recorded = lines(toy.run(*workers))

    for line in recorded:
        RUN.validate(line)
        for name, value in line.get("user_properties") or ():
            if name == "figures":
                FIGURES.validate(json.loads(value))
    assert sum(line["$report_type"] == "AssaySession" for line in recorded) == 1


def test_a_proof_keeps_to_it(suite):
    """The session of a run that plants faults says of each what it names and what missed it."""
    suite.plant("wrong", "null")
    suite.check("judge.equal(engine.echo(1), 1, 'echo')", "first")
    session = suite.run("--prove").session()

    RUN.validate(session)
    assert session["proof"]["faults"]["connector/wrong"]["claims"] == ["connector.toy.first", "connector.toy.second"]


def test_the_session_says_what_a_report_needs(toy):
    """Claims with their source and place, capabilities with reasons, known failures that were used."""
    session = toy.run().session()
    told = session["claims"]["connector.toy.unsupported"]

    assert (told["source"], told["requires"], told["where"].partition(":")[0]) == (
        "the toy",
        ["many_reads"],
        "suites/connector/test_toy.py",
    )
    assert session["engines"]["connector/toy"]["capabilities"].keys() >= {"many_reads", "lab"}
    assert [entry["claim"] for entry in session["known"]] == ["connector.toy.known"]
    assert session["environment"] == ""


def broken(change):
    def apply(line):
        line = copy.deepcopy(line)
        change(line)
        return line

    return apply


@pytest.mark.parametrize(
    "change",
    [
        broken(lambda session: session.pop("claims")),
        broken(lambda session: session.update(schema=3)),
        broken(lambda session: session["claims"]["connector.toy.holds"].update(level="MAY")),
        broken(lambda session: session["claims"]["connector.toy.holds"].update(where="somewhere")),
        broken(lambda session: session["engines"]["connector/toy"]["capabilities"].update(lab={"support": "perhaps"})),
        broken(lambda session: session.update({"$report_type": "Else"})),
    ],
    ids=["no claims", "later", "level", "where", "support", "type"],
)
def test_a_wrong_session_is_refused(toy, change):
    """What the schema does not allow."""
    session = toy.run().session()

    RUN.validate(session)
    assert not RUN.is_valid(change(session))


@pytest.mark.parametrize(("name", "value"), [("verdict", "FINE"), ("schema", 1), ("seed", "1234"), ("claim", 7)])
def test_a_wrong_result_is_refused(toy, name, value):
    """A property of another type, or of no known value."""
    report = next(line for line in lines(toy.run()) if "verdict" in dict(line.get("user_properties") or ()))
    forged = {**report, "user_properties": [[n, value if n == name else v] for n, v in report["user_properties"]]}

    RUN.validate(report)
    assert not RUN.is_valid(forged)


def test_a_result_without_a_claim_is_refused(toy):
    """A property is missing."""
    report = next(line for line in lines(toy.run()) if "verdict" in dict(line.get("user_properties") or ()))
    forged = {**report, "user_properties": [pair for pair in report["user_properties"] if pair[0] != "claim"]}

    assert not RUN.is_valid(forged)


def test_committed_runs_of_schema_1_are_read():
    """The records of one H200, written before schema 2."""
    committed = sorted((PUBLISHED.parents[3] / "ci/results").glob("*.jsonl"))
    runs = [read_run(path) for path in committed]

    assert {run.session["schema"] for run in runs} >= {1}
    assert sum(len(run.results) for run in runs) > 300
    assert all(result.start > 0 for run in runs for result in run.results)
