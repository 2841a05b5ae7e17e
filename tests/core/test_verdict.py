"""Verdicts: which fail a run, which judge, and what each finding carries."""

import pytest

from harness.core.verdict import ClaimBroken, DeadlineMissed, EngineRaised, Finding, Inconclusive, Leak, Unavailable, Vacuous, Verdict


def test_verdicts_that_fail_the_run():
    """Four do; a skip, an expected failure and a pass do not."""
    assert {str(v) for v in Verdict if v.fails_the_run} == {"FAIL", "INCONCLUSIVE", "VACUOUS", "ERROR"}


def test_verdicts_that_judge():
    """All but the skips."""
    assert [str(v) for v in Verdict if not v.judged] == ["UNSUPPORTED", "UNAVAILABLE"]


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (Finding, Verdict.FAIL),
        (ClaimBroken, Verdict.FAIL),
        (Leak, Verdict.FAIL),
        (EngineRaised, Verdict.FAIL),
        (DeadlineMissed, Verdict.FAIL),
        (Inconclusive, Verdict.INCONCLUSIVE),
        (Vacuous, Verdict.VACUOUS),
    ],
)
def test_a_finding_carries_its_verdict(kind, verdict):
    """Whatever it found, it is a Finding with a verdict of its own."""
    finding = kind("HEADLINE", got="x")

    assert isinstance(finding, Finding)
    assert finding.verdict is verdict
    assert isinstance(finding, ClaimBroken) == (verdict is Verdict.FAIL and kind is not Finding)
    assert isinstance(finding, Inconclusive) == (verdict is Verdict.INCONCLUSIVE)


def test_the_text_of_a_finding():
    """As an exception it reads in one line; expected is left out where there is none."""
    assert str(ClaimBroken("BITS DIFFER", got="1", expected="2", extent="1/1")) == "BITS DIFFER: got 1, expected 2"
    assert str(Vacuous("NOTHING COMPARED", got="0 values")) == "NOTHING COMPARED: got 0 values"


def test_a_missed_deadline_keeps_the_stacks():
    """Where every thread stood travels with the finding and stays out of its line."""
    finding = DeadlineMissed("DEADLINE MISSED", got="x", expected="y", stacks="Thread 1")

    assert (finding.stacks, finding.extent, str(finding)) == ("Thread 1", "", "DEADLINE MISSED: got x, expected y")


def test_unavailable_is_no_finding():
    """What cannot be had here is nobody's fault."""
    assert not isinstance(Unavailable("no weights"), (Finding, AssertionError))
