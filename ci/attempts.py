"""What one run of one shard left behind, as far as it came: its report log and its JUnit file.

A file's name without folder and suffix names the shard, `cpu-own-2`; the same name in several folders are attempts at it. An attempt is
complete where its report log holds the record of the session and ends with the line SessionFinish of one that was neither interrupted nor
broken (exit status 0, 1 or 5), and its JUnit file is there and tells of the same tests. What a killed writer left is read up to its last
whole line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ci import junit
from harness.report.runs import UnreadableRun, read_entries

COMPLETE = (0, 1, 5)
"""Exit statuses of pytest's after which every test of the session had its turn: passed, failed, nothing to run."""

Entry = Mapping[str, Any]
"""A line of a report log."""


class MergeError(ValueError):
    """These files cannot be merged, whatever their verdicts; the text names the file and what to do."""


@dataclass(frozen=True)
class Attempt:
    """One run of one shard. `flaw` says why it is not complete, empty where it is.

    `status`: pytest's exit status, None where it was ended.
    `tests`: node id to the test's reports in their order, of every test that came to a result. `others`: the lines that belong to no test,
    without AssaySession and SessionFinish. `suite`: the JUnit file's test suite, None where it cannot be read.
    """

    shard: str
    log: Path
    status: int | None
    flaw: str
    session: Entry = field(default_factory=dict)
    tests: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    others: tuple[Entry, ...] = ()
    suite: ElementTree.Element | None = None

    @property
    def complete(self) -> bool:
        """Whether all of its tests had their turn, and both files say so."""
        return not self.flaw


def find_logs(paths: Iterable[Path], *, besides: Iterable[Path] = ()) -> list[Path]:
    """Report logs: the files given, and all `*.jsonl` below folders; each once, sorted, without `besides`. Raises MergeError."""
    left_out = {path.resolve() for path in besides}
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise MergeError(f"{path}: there is no such file or folder; give what `python -m ci.run --out DIR` wrote")
        for log in path.rglob("*.jsonl") if path.is_dir() else [path.with_suffix(".jsonl")]:
            if log.resolve() not in left_out:
                found[log.resolve()] = log
        for xml in path.rglob("*.xml") if path.is_dir() else []:
            if not xml.with_suffix(".jsonl").exists():
                raise MergeError(f"{xml}: has no {xml.stem}.jsonl beside it; a shard has both, or the report log alone where it was ended")
    return sorted(found.values())


def read_attempt(log: Path) -> Attempt:
    """Both files of one attempt. Raises MergeError for a log that is damaged elsewhere than in its last line, or is merged itself."""
    reports: dict[str, list[Entry]] = {}
    others, session, status = [], {}, None
    try:
        for where, entry in read_entries(log, cut_off=True):
            match entry.get("$report_type"):
                case "TestReport":
                    reports.setdefault(str(entry.get("nodeid")), []).append(entry)
                case "AssaySession" if "shards" in entry:
                    raise MergeError(f"{where}: this file is a merged one; leave it out")
                case "AssaySession":
                    session = entry
                case "SessionFinish":
                    status = int(entry.get("exitstatus", 3))
                case _:
                    others.append(entry)
    except UnreadableRun as wrong:
        raise MergeError(str(wrong)) from None
    tests = {nodeid: tuple(phases) for nodeid, phases in reports.items() if _came_to_a_result(phases)}
    suite, broken = junit.read(log.with_suffix(".xml"))
    unsigned = "" if session else f"{log}: has no AssaySession; give what a run of Assay's suites wrote"
    flaw = _flaw(log, status) or unsigned or broken or _untold(log, tests, suite)
    return Attempt(log.stem, log, status, flaw, session, tests, tuple(others), suite)


def verdict(reports: Iterable[Entry]) -> str:
    """What a test's reports come to: the last verdict of Assay's, else the worst outcome of pytest's."""
    outcomes, last = set(), ""
    for report in reports:
        outcomes.add(report.get("outcome"))
        last = str(dict(report.get("user_properties") or []).get("verdict") or last)
    return last or next((outcome for outcome in ("failed", "skipped") if outcome in outcomes), "passed")


def _came_to_a_result(reports: list[Entry]) -> bool:
    """Whether the test was torn down, or failed before: a failure counts, however the session ended."""
    # The crash of an xdist worker is reported with a phase of its own, `???`.
    return any(report.get("when") not in ("setup", "call") or report.get("outcome") == "failed" for report in reports)


def _flaw(log: Path, status: int | None) -> str:
    if status is None:
        lines = log.read_bytes().split(b"\n")
        where = f", cut off in line {len(lines)}" if lines[-1] else ""
        return f"{log}: was ended before its SessionFinish{where}"
    return "" if status in COMPLETE else f"{log}: pytest ended with exit status {status} ({_STATUS.get(status, 'unknown')})"


_STATUS = {2: "interrupted", 3: "internal error", 4: "wrong use"}


def _untold(log: Path, tests: Mapping[str, object], suite: ElementTree.Element | None) -> str:
    told = junit.names(suite) if suite is not None else set()
    untold = [nodeid for nodeid in tests if junit.name_of(nodeid) not in told]
    return f"{log.with_suffix('.xml')}: lacks {len(untold)} tests of {log.name}, such as {untold[0]}" if untold else ""
