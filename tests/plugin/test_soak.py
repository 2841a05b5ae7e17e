"""Long drawings wait to be asked for."""

import pytest

TESTS = """
@claim("connector.toy.first", source="toy")
def test_first(engine, judge):
    "Short."
    judge.equal(engine.echo(1), 1, "echo")

@pytest.mark.soak
@claim("connector.toy.second", source="toy")
def test_second(engine, judge):
    "Long."
    judge.equal(engine.echo(2), 2, "echo")
"""
FILE = "suites/connector/test_toy.py"
FIRST, SECOND = "test_first[connector/toy@cpu]", "test_second[connector/toy@cpu]"


@pytest.mark.parametrize(
    ("args", "ran"),
    [
        ([], {FIRST}),
        (["-m", "cpu"], {FIRST}),
        (["-m", "soak"], {SECOND}),
        (["-m", "cpu and soak"], {SECOND}),
        (["-m", "cpu and not soak"], {FIRST}),
        (["-m", "soak or cpu"], {FIRST, SECOND}),
        ([f"{FILE}::{SECOND}"], {SECOND}),
        ([f"{FILE}::test_second"], {SECOND}),
        ([FILE], {FIRST}),
        ([f"{FILE}::{FIRST}"], {FIRST}),
    ],
)
def test_asked_for(suite, args, ran):
    """Neither a plain run nor one of a size starts them; naming the mark does, and so does a test's own id, as a replay has it."""
    suite.write(TESTS)

    assert set(suite.run(*args).verdicts()) == ran
