"""What a run leaves behind: properties on every result (JUnit XML, report log), a record of the session, and the table at the end.

Schema 2; harness/report/schema/run-2.json has every field. A result's properties are text, numbers as they are: schema, test, claim,
sentence, level, engine, version, profile, options, fault, verdict, reason, got, expected, figures (JSON: a list of name, value, unit,
bound and, where there is one, series: x, y, points), seed, control, machine, replay. In the report log a test has a report for each
phase; read the last one that holds a `verdict`.

The session's record holds what stands once for all results: the command, the machine, versions; and, since schema 2, `environment`,
`claims` (level, source, requires, where of each claim with a result), `known` (the entries of ci/known_failures.toml that are about a
result), the capabilities of each engine with a result, and of a proof each fault's role, sentence, claims, and which of these it missed.
Schema 1 had none of these, no series, and of a proof only each fault's fate.
"""

from __future__ import annotations

import datetime
import json
import shlex
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from harness import tables
from harness.core import determinism, guard
from harness.core.devices import fingerprint
from harness.core.judge import Judge
from harness.core.verdict import Finding, Verdict
from harness.pytest_plugin import known, machine, record_tables, text
from harness.pytest_plugin.cards import HOLDER
from harness.pytest_plugin.prove import SCORER
from harness.pytest_plugin.state import CASE, CLAIM, REASON, RUN, VERDICT

SCHEMA = 2
RECORDER = "assay-recorder"
EXIT_STATUS = pytest.StashKey[int]()


def attach(item: pytest.Item, finding: Finding | None, judge: Judge | None) -> None:
    """Put the item's properties on it."""
    case, claim, run = item.stash[CASE], item.stash[CLAIM], item.config.stash[RUN]
    judge = judge or Judge()
    reason = item.stash.get(REASON, "") or (f"{finding.headline}: {finding.got}" if finding else "")
    values: dict[str, object] = {
        "schema": SCHEMA,
        "test": item.nodeid,
        "claim": claim.id,
        "sentence": claim.sentence,
        "level": str(claim.level.value),
        "engine": case.selection.spec.name,
        "version": case.selection.spec.version or "",
        "profile": case.profile.name,
        "options": ",".join(f"{k}={v}" for k, v in case.selection.options.items()),
        "fault": case.fault.name if case.fault else "",
        "verdict": str(item.stash[VERDICT].value),
        "reason": reason,
        "got": finding.got if finding else "",
        "expected": finding.expected if finding else "",
        "figures": json.dumps([figure.record() for figure in judge.figures]),
        "seed": run.seed,
        "control": judge.control,
        "machine": machine.quoted(item, finding),
        "replay": text.replay(item),
    }
    item.user_properties += values.items()


def session_record(config: pytest.Config) -> dict[str, object]:
    """What the whole run depended on."""
    run = config.stash[RUN]
    recorder, scorer = config.pluginmanager.get_plugin(RECORDER), config.pluginmanager.get_plugin(SCORER)
    counts, results = recorder.counts(), recorder.results()
    return {
        "$report_type": "AssaySession",
        "schema": SCHEMA,
        "started": datetime.datetime.fromtimestamp(run.started, datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["pytest", *config.invocation_params.args]),
        "seed": run.seed,
        "commit": _commit(config),
        "machine": fingerprint(),
        "doctor": run.doctor,
        "determinism": {"asked": asdict(determinism.Policy()), "in_force": determinism.in_force()},
        "environment": record_tables.environment(config),
        "engines": record_tables.engines(config, {result["engine"] for result in results}),
        "claims": record_tables.claims(config, {result["claim"] for result in results}),
        "known": record_tables.known_used(config, results),
        "unavailable": run.unavailable,
        "boots": dict(run.boots),
        "leases": run.leases,
        "seconds": {name: round(seconds, 4) for name, seconds in run.spent.items()},
        "verdicts": [{"kind": kind, "engine": engine, **row} for (kind, engine), row in sorted(counts.items())],
        "proof": scorer.outcome() if scorer else None,
    }


def _commit(config: pytest.Config) -> str:
    """The checkout's commit, `+` if it has changes; empty outside a checkout."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"],
        cwd=config.rootpath,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _today() -> datetime.date:
    """In UTC, so that a run and `ci.known check` say the same wherever they are."""
    return datetime.datetime.now(datetime.timezone.utc).date()


def _case(properties: dict[str, Any]) -> str:
    options = f":{properties['options']}" if properties["options"] else ""
    return f"{properties['engine']}{options}@{properties['profile']}"


class Recorder:
    """Gathers the last properties of every test where all reports arrive, and writes the session's record and table."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # By name, in the order of arrival.
        self._last: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Set-up, call and teardown each bring a report; the last one that holds a verdict decides.
        properties = dict(report.user_properties)
        if "verdict" in properties:
            self._last[properties["test"]] = properties

    def results(self) -> list[dict[str, Any]]:
        """The last properties of every test, in the order of arrival."""
        return list(self._last.values())

    def counts(self) -> dict[tuple[str, str], Counter[str]]:
        """(kind, engine@profile) to the number of each verdict."""
        counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for properties in self._last.values():
            counts[properties["engine"].partition("/")[0], _case(properties)][properties["verdict"]] += 1
        return counts

    def failed(self) -> list[tables.Failed]:
        """What fails the run."""
        own = [p for p in self._last.values() if Verdict(p["verdict"]).fails_the_run]
        return [tables.Failed(_case(p), p["verdict"], p["claim"], text.shortest(p["replay"], p["seed"])) for p in own]

    def skips(self) -> list[str]:
        """A line for each reason why claims were not judged, with how many they are."""
        reasons = Counter((p["verdict"], _case(p), p["reason"]) for p in self._last.values() if not Verdict(p["verdict"]).judged)
        return [f"{verdict}  {case}: {reason} ({n} claims)" for (verdict, case, reason), n in sorted(reasons.items())]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        judged = any(Verdict(p["verdict"]).judged for p in self._last.values())
        if self._last and not judged and session.exitstatus == pytest.ExitCode.OK:
            # All skipped: nobody learned anything, so this must not look like success.
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        if session.exitstatus == pytest.ExitCode.OK and self._config.option.strict_known and known.overdue_here(self._config, _today()):
            # For lanes. A person who runs the suites on an engine did not make the promise, and is only told.
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        run, stats = self._config.stash[RUN], terminalreporter.stats
        if not self._last:
            if not stats.get("deselected") or stats.keys() & {"passed", "failed", "error", "skipped"}:
                return
            terminalreporter.write_line("nothing was judged: each test was deselected, or no engine of its kind is here")
        elif run.prove is None:
            tables.show_verdicts(self.counts(), terminalreporter)
            tables.show_failed(self.failed(), terminalreporter)
        skipped = [f"UNAVAILABLE  {label}: {reason}" for label, reason in run.unavailable.items() if label not in self._judged()]
        tables.show_lines(self.skips() + skipped, terminalreporter)
        failing = known.overdue_here(self._config, _today()) if self._config.option.strict_known else []
        for line in known.overdue(self._config, _today()):
            terminalreporter.write_line(line, yellow=line not in failing, red=line in failing)

    def _judged(self) -> set[str]:
        return {_case(p) for p in self._last.values()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        run, told = self._config.stash[RUN], getattr(node, "workeroutput", {}).get("assay", {})
        run.boots.update(told.get("boots", {}))
        run.spent.update(told.get("spent", {}))
        run.doctor.update(told.get("doctor", {}))
        if told.get("cards"):
            run.leases[node.gateway.id] = told["cards"]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[EXIT_STATUS] = 0
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config), RECORDER)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """What the harness costs is the loop less the builds and the engine calls in it.

    Builds are told apart: one that imports its engine for ten seconds would make any harness look cheap.
    """
    before, started = guard.ENGINE_TIME.seconds, time.perf_counter()
    result = yield
    if not getattr(session.config.option, "numprocesses", None):
        spent = session.config.stash[RUN].spent
        spent["loop"] += time.perf_counter() - started
        spent["engine"] += guard.ENGINE_TIME.seconds - before - spent["build"]
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """After everybody else: a worker reports its boots, the main process writes the session's record into both files."""
    config = session.config
    if hasattr(config, "workerinput"):
        run = config.stash[RUN]
        cards = config.stash[HOLDER].told()
        config.workeroutput["assay"] = {"boots": dict(run.boots), "spent": dict(run.spent), "doctor": run.doctor, "cards": cards}
    elif not config.option.collectonly and not config.option.plan:
        _write_session(config)
    result = yield
    config.stash[EXIT_STATUS] = int(session.exitstatus)
    return result


def _write_session(config: pytest.Config) -> None:
    log = getattr(config, "_report_log_plugin", None)
    junit = config.stash.get(xml_key, None)
    if log is None and junit is None:
        return
    record = session_record(config)
    if log is not None:
        # pytest-reportlog writes reports only; its writer is the one way to add a line of another type to its file.
        log._write_json_data(record)
    if junit is not None:
        junit.add_global_property("assay", json.dumps(record))
