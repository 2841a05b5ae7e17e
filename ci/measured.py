"""What one recorded run says of the seconds that its tests and boots took.

A report log tells a test's phases apart, so the boot of a shared engine, which falls into the set-up of the first test that gets it, is
taken out of that test's time and told by itself. A JUnit file has one time for each test: there the boot stays in it, and no boot is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ci import junit
from ci.items import Item
from ci.timings import Timings, TimingsError, is_time
from harness.report.runs import UnreadableRun, read_entries


@dataclass
class _Test:
    """Seconds of each phase, whether its set-up passed, and whether it is one of Assay's."""

    phases: dict[str, float] = field(default_factory=dict)
    up: bool = False
    judged: bool = False


def measure(files: Sequence[Path], items: Iterable[Item]) -> list[Timings]:
    """The times of each run, in the order given: a JUnit file beside whose report log is given too is left out, since it tells the same.

    A test that was skipped took what its skip took: it will be, where the lane runs. Raises TimingsError for a file that cannot be read,
    or tells of no test.
    """
    known = {item.nodeid: item for item in items}
    logs = {file.resolve() for file in files if file.suffix == ".jsonl"}
    found: dict[Path, Timings] = {}
    for file in files:
        if file.suffix not in (".jsonl", ".xml"):
            raise TimingsError(f"{file}: give report logs, *.jsonl, and JUnit files, *.xml")
        if file.resolve() in found or (file.suffix == ".xml" and file.resolve().with_suffix(".jsonl") in logs):
            continue
        run = _of_log(file, known) if file.suffix == ".jsonl" else _of_junit(file)
        if not run.tests:
            raise TimingsError(f"{file}: tells of no test that ran; give what `pytest suites` wrote")
        found[file.resolve()] = run
    return list(found.values())


def _of_log(file: Path, known: Mapping[str, Item]) -> Timings:
    ran = {name: test for name, test in _tests(file).items() if test.judged}
    seconds = {name: sum(test.phases.values()) for name, test in ran.items()}
    boots: dict[str, float] = {}
    for boot, names in _shared(ran, known).items():
        first, *rest = (ran[name].phases["setup"] for name in names)
        boots[boot] = max(0.0, first - (median(rest) if rest else 0.0))
        seconds[names[0]] -= boots[boot]
    return _once(seconds, boots)


def _tests(file: Path) -> dict[str, _Test]:
    """Every test of the log, in the order in which they ran."""
    tests: dict[str, _Test] = {}
    try:
        entries = [(where, entry) for where, entry in read_entries(file) if entry.get("$report_type") == "TestReport"]
    except UnreadableRun as wrong:
        raise TimingsError(str(wrong)) from None
    for where, entry in entries:
        seconds, phase = entry.get("duration"), str(entry.get("when"))
        if not is_time(seconds):
            raise TimingsError(f"{where}: duration {seconds!r} is no number of seconds")
        test = tests.setdefault(str(entry.get("nodeid")), _Test())
        test.phases[phase] = seconds
        test.up = test.up or (phase == "setup" and entry.get("outcome") == "passed")
        test.judged = test.judged or any(pair[:1] == ["verdict"] for pair in entry.get("user_properties") or [] if isinstance(pair, list))
    return tests


def _shared(ran: Mapping[str, _Test], known: Mapping[str, Item]) -> dict[str, list[str]]:
    """Boot to the tests that were given its shared engine, in the order in which they ran."""
    found: dict[str, list[str]] = {}
    for name, test in ran.items():
        item = known.get(name)
        if item is not None and test.up and not item.builds:
            found.setdefault(item.boot, []).append(name)
    return found


def _of_junit(file: Path) -> Timings:
    suite, wrong = junit.read(file)
    if suite is None:
        raise TimingsError(wrong)
    seconds: dict[str, float] = {}
    for case in suite.iter("testcase"):
        properties = {str(p.get("name")): str(p.get("value")) for p in case.iter("property")}
        if "test" not in properties:
            continue
        try:
            took = float(case.get("time", ""))
        except ValueError:
            took = -1.0
        if not is_time(took):
            raise TimingsError(f"{file}: {properties['test']}: time {case.get('time')!r} is no number of seconds")
        # A test whose call and teardown both went wrong stands there twice.
        seconds[properties["test"]] = max(took, seconds.get(properties["test"], 0.0))
    return _once(seconds, {})


def _once(tests: Mapping[str, float], boots: Mapping[str, float]) -> Timings:
    return Timings({name: (time,) for name, time in tests.items()}, {name: (time,) for name, time in boots.items()})
