"""From what happened to a test to its verdict, and from the verdict to pytest's report."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from harness.core.judge import Judge
from harness.core.verdict import ClaimBroken, DeadlineMissed, Finding, Verdict
from harness.pytest_plugin import known, record, text
from harness.pytest_plugin.engines import POOL, WATCHED, check_usage
from harness.pytest_plugin.prove import expected_to_fail, judge_the_fault
from harness.pytest_plugin.routing import not_yet
from harness.pytest_plugin.state import CASE, REASON, RUN, VERDICT


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    if CASE not in item.stash or _stopped(call):
        return (yield)
    finding = None
    reached = call.when == "call" or call.excinfo is not None
    if reached and not (call.when == "teardown" and call.excinfo is None):
        finding = _settle(item, call)
        record.attach(item, finding)
    report: pytest.TestReport = yield
    if reached and item.stash[VERDICT].judged:
        _shape(item, call, report, finding)
    return report


def _stopped(call: pytest.CallInfo) -> bool:
    return call.excinfo is not None and issubclass(call.excinfo.type, (KeyboardInterrupt, pytest.exit.Exception))


def _settle(item: pytest.Item, call: pytest.CallInfo) -> Finding | None:
    """Give the item its verdict. Returns the finding to show, if there is one."""
    verdict, finding = _classify(item, call)
    case, run = item.stash[CASE], item.config.stash[RUN]
    if isinstance(finding, DeadlineMissed):
        run.missed_deadline = True
    if case.fault is None and verdict.judged:
        verdict, finding = _against_expectation(item, verdict, finding)
    item.stash[VERDICT] = verdict
    if verdict.fails_the_run:
        # Whatever the engine is now, the next test gets a new one.
        _close_pool(item)
    return finding


def _classify(item: pytest.Item, call: pytest.CallInfo) -> tuple[Verdict, Finding | None]:
    if call.excinfo is None:
        return Verdict.PASS, None
    raised = call.excinfo.value
    if isinstance(raised, Finding):
        return raised.verdict, raised
    if isinstance(raised, pytest.skip.Exception) and VERDICT in item.stash:
        return item.stash[VERDICT], None
    if isinstance(raised, (AssertionError, pytest.fail.Exception)):
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
        return Verdict.FAIL, ClaimBroken("EXPECTED FAILURE PASSED", got="PASS", expected=f"a failure; {expected.remedy}")
    return verdict, finding


def _close_pool(item: pytest.Item) -> None:
    """Close the shared engine; a close that fails too must not hide the finding."""
    try:
        item.config.stash[POOL].close()
    except Finding as also:
        item.add_report_section("call", "engine close", f"{also.headline}: {also.got}")


def _shape(item: pytest.Item, call: pytest.CallInfo, report: pytest.TestReport, finding: Finding | None) -> None:
    """Make pytest's report say what the verdict says."""
    verdict = item.stash[VERDICT]
    report.assay_verdict = str(verdict)  # type: ignore[attr-defined]
    judge = getattr(item, "funcargs", {}).get("judge")
    if expected_to_fail(item):
        judge_the_fault(item, report, finding, judge)
        return
    if verdict is Verdict.KNOWN:
        report.outcome, report.wasxfail = "skipped", item.stash[REASON]  # type: ignore[attr-defined]
        report.when = "call"
    elif finding is not None:
        report.outcome = "failed"
        shown = text.failure(item, finding, judge)
        report.longrepr = f"{report.longrepr}\n\n{shown}" if item.config.option.verbose > 1 and call.excinfo else shown
        if call.when == "setup":
            # A claim that broke while the engine booted is a failure like any other; pytest calls what breaks in set-up an error.
            report.when = "call"
        if isinstance(finding, DeadlineMissed):
            report.sections.append(("where every thread stood", finding.stacks))
    elif verdict is Verdict.ERROR:
        report.longrepr = f"{report.longrepr}\n\nERROR  {item.stash[CASE].label}: the harness broke, not the engine\nreplay    {text.replay(item)}"


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
