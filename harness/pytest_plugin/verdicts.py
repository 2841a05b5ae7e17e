"""From what happened to a test to its verdict, and from the verdict to pytest's report."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from _pytest.runner import runtestprotocol

from harness.core import faults
from harness.core.judge import Judge
from harness.core.known_failures import PASSED
from harness.core.verdict import ClaimBroken, DeadlineMissed, Finding, Verdict
from harness.pytest_plugin import known, record, text
from harness.pytest_plugin.engines import POOL, WATCHED, check_usage
from harness.pytest_plugin.prove import expected_to_fail, judge_the_fault, known_claims
from harness.pytest_plugin.routing import not_yet
from harness.pytest_plugin.state import CASE, REASON, RUN, VERDICT


def pytest_configure(config: pytest.Config) -> None:
    # Read here, so that a wrong entry stops the run before the first engine boots.
    known.check(config, known_claims(config))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """After a test body that found nothing: it must have compared something, and nothing may have leaked."""
    __tracebackhide__ = True
    result = yield
    if CASE in pyfuncitem.stash:
        for label, thing, before in pyfuncitem.stash.get(WATCHED, []):
            check_usage(label, before, dict(thing.usage()))
        judge = pyfuncitem.funcargs.get("judge")
        (judge if isinstance(judge, Judge) else Judge()).close()
    return result


@dataclass
class Outcome:
    """What the phases of a test came to so far: the worst verdict, what was found, in which phase, and the test's record."""

    verdict: Verdict
    finding: Finding | None
    when: str
    judge: Judge | None


OUTCOME = pytest.StashKey[Outcome]()
LATER = pytest.StashKey[dict[str, str]]()
"""What broke in phases after the one that decided, in a line each."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report a test once its verdict stands: a leak is found after the body, when pytest by itself would have told of a pass."""
    if CASE not in item.stash:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _conclude(item, runtestprotocol(item, log=False, nextitem=nextitem)):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    judged = CASE in item.stash and not _stopped(call)
    if judged and (call.when == "call" or call.excinfo is not None):
        _note(item, call)
    report: pytest.TestReport = yield
    if judged:
        # pytest.xfail() excuses nothing here: expected failures stand in a file of their own.
        vars(report).pop("wasxfail", None)
    return report


def _stopped(call: pytest.CallInfo) -> bool:
    return call.excinfo is not None and issubclass(call.excinfo.type, (KeyboardInterrupt, pytest.exit.Exception))


def _note(item: pytest.Item, call: pytest.CallInfo) -> None:
    """The first phase that fails the run decides; what breaks after it is told beside it."""
    verdict, finding = _classify(item, call)
    if faults.MISTAKES:
        verdict, finding = Verdict.ERROR, None
        item.add_report_section("call", "a mistake in the fault", "\n".join(faults.MISTAKES))
        faults.MISTAKES.clear()
    before = item.stash.get(OUTCOME, None)
    if before is None or (verdict.fails_the_run and not before.verdict.fails_the_run):
        judge = (getattr(item, "funcargs", None) or {}).get("judge")
        item.stash[OUTCOME] = Outcome(verdict, finding, call.when, judge if isinstance(judge, Judge) else None)
    elif call.excinfo is not None:
        told = f"{finding.headline}: {finding.got}" if finding else f"{call.excinfo.typename}: {call.excinfo.value}"
        item.stash.setdefault(LATER, {})[call.when] = text.one_line(told)
    if isinstance(finding, DeadlineMissed):
        item.config.stash[RUN].missed_deadline = True
    if verdict.fails_the_run:
        # Also after a failure that is known.
        item.config.stash[POOL].spoiled = True


def _conclude(item: pytest.Item, reports: list[pytest.TestReport]) -> list[pytest.TestReport]:
    """Settle the verdict and let one report bear it: that of the call, or of the set-up if there was no call."""
    outcome = item.stash.get(OUTCOME, None)
    if outcome is None:
        return reports
    by_phase = {report.when: report for report in reports}
    bearer = by_phase.get("call", by_phase["setup"])
    broke = by_phase[outcome.when]
    for report in reports:
        if report is not bearer and report.failed:
            if report is broke:
                bearer.longrepr = report.longrepr
            else:
                told = item.stash.get(LATER, {}).get(report.when, "") if item.config.option.verbose < 2 else str(report.longrepr)
                bearer.sections.append((f"{report.when} failed too", told or str(report.longrepr)))
            report.outcome, report.longrepr = "passed", None
    verdict, finding = outcome.verdict, outcome.finding
    if item.stash[CASE].fault is None and verdict.judged:
        verdict, finding = _against_expectation(item, verdict, finding)
    item.stash[VERDICT] = verdict
    record.attach(item, finding, outcome.judge)
    for report in {id(r): r for r in (bearer, reports[-1])}.values():
        # JUnit reads the last report of a test, everybody else the one that bears the verdict.
        report.user_properties = list(item.user_properties)
    if verdict.judged:
        _shape(item, bearer, finding, outcome)
    return reports


def _classify(item: pytest.Item, call: pytest.CallInfo) -> tuple[Verdict, Finding | None]:
    if call.excinfo is None:
        return Verdict.PASS, None
    raised = call.excinfo.value
    if isinstance(raised, Finding):
        return raised.verdict, raised
    if isinstance(raised, pytest.skip.Exception) and VERDICT in item.stash:
        return item.stash[VERDICT], None
    if isinstance(raised, (AssertionError, pytest.fail.Exception)) and not isinstance(raised, pytest.xfail.Exception):
        return Verdict.FAIL, ClaimBroken("ASSERTION FAILED", got=str(raised) or "a bare assert")
    return Verdict.ERROR, None


def _against_expectation(item: pytest.Item, verdict: Verdict, finding: Finding | None) -> tuple[Verdict, Finding | None]:
    """KNOWN where a failure was expected; a strict expectation that was not met is a failure of its own."""
    expected = known.expectation(item, not_yet(item, item.stash[CASE]))
    if expected is None:
        return verdict, finding
    if verdict.fails_the_run and verdict in expected.verdicts:
        item.stash[REASON] = expected.reason
        return Verdict.KNOWN, finding
    if verdict is Verdict.PASS and expected.strict:
        return Verdict.FAIL, ClaimBroken(PASSED, got="PASS", expected=f"a failure; {expected.remedy}")
    return verdict, finding


def _shape(item: pytest.Item, report: pytest.TestReport, finding: Finding | None, outcome: Outcome) -> None:
    """Make pytest's report say what the verdict says."""
    verdict = item.stash[VERDICT]
    report.assay_verdict = str(verdict)  # type: ignore[attr-defined]
    if verdict is not Verdict.ERROR:
        # A claim that broke while the engine booted is a failure like any other; pytest calls what breaks in set-up an error.
        report.when = "call"
    if expected_to_fail(item):
        judge_the_fault(item, report, finding, outcome.judge)
        return
    if verdict is Verdict.KNOWN:
        report.outcome, report.wasxfail = "skipped", item.stash[REASON]  # type: ignore[attr-defined]
    elif finding is not None:
        report.outcome = "failed"
        shown = text.failure(item, finding, outcome.judge)
        report.longrepr = f"{report.longrepr}\n\n{shown}" if item.config.option.verbose > 1 and report.longrepr else shown
        if isinstance(finding, DeadlineMissed):
            report.sections.append(("where every thread stood", finding.stacks))
    elif verdict is Verdict.ERROR:
        report.outcome = "failed"
        report.longrepr = (
            f"{report.longrepr}\n\nERROR  {item.stash[CASE].label}: the harness broke, not the engine\nreplay    {text.replay(item)}"
        )


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """The verdict in place of pytest's word, where there is one; the counts stay pytest's own."""
    verdict = getattr(report, "assay_verdict", None)
    if verdict is None or report.when != "call":
        return None
    if hasattr(report, "wasxfail"):
        return "xfailed", "k", verdict
    letter = {"PASS": ".", "FAIL": "F", "INCONCLUSIVE": "I", "VACUOUS": "V", "ERROR": "E"}[verdict]
    return (report.outcome, letter, verdict) if not getattr(report, "assay_proved", None) else (report.outcome, ".", report.assay_proved)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """An engine that hangs may leave threads that never end; everything is reported by now, so leave without waiting for them."""
    run = config.stash.get(RUN, None)
    if run is None or not run.missed_deadline or hasattr(config, "workerinput"):
        return
    waiting = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon and t.is_alive()]
    if waiting:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[record.EXIT_STATUS])
