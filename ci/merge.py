"""Merges what the shards of a run left behind: `python -m ci.merge PATHS... -o DIR/NAME` writes DIR/NAME.jsonl and DIR/NAME.xml.

Every test counts once. A shard that ran more than once (its node died, or a CI system retried it) counts by its last complete attempt, by
the clock of their sessions. Attempts that did not complete count only where no attempt of their shard did: then the tests that they came
through are merged, the shard stands in both files as an error, and the merge fails. No attempt is overruled in silence: where two disagree
on a verdict, whatever became of them, the merge says so and fails, and the verdict that fails the run is the one that is merged.

Exit status: 0 merged, whatever the verdicts; 1 merged, but attempts disagree or something is missing; 2 nothing written, since these files
are no shards of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from ci import junit, sessions
from ci.attempts import Attempt, Entry, MergeError, find_logs, read_attempt, verdict
from ci.choose import Shard, choose, worst
from harness.core.verdict import Verdict
from harness.report.runs import UnreadableRun, read_run


@dataclass(frozen=True)
class Merged:
    """Shards of one run, and the two files of it. `status`: what the suite exits with; `trouble`: why the merge fails, a line each."""

    shards: tuple[Shard, ...]
    log: str
    junit: ElementTree.Element
    status: int
    trouble: tuple[str, ...]

    @property
    def tests(self) -> int:
        return sum(len(shard.tests) for shard in self.shards)


def merge(logs: Iterable[Path], *, command: str = "", expected: Mapping[str, Collection[str]] | None = None) -> Merged:
    """Merge report logs and the JUnit files beside them. `expected`: shard to its tests, if known; what is not there is then missed.

    Raises MergeError where these are no shards of one run.
    """
    attempts = [read_attempt(log) for log in logs]
    sessions.check_alike(attempts)
    by_shard: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda a: (str(a.session.get("started", "")), a.log)):
        by_shard[attempt.shard].append(attempt)
    names = sorted({*by_shard, *(expected or {})})
    shards = tuple(choose(name, by_shard[name], (expected or {}).get(name)) for name in names)
    _check_apart(shards)
    status = worst(shard.status for shard in shards)
    trouble = tuple(line for shard in shards for line in shard.trouble)
    return Merged(shards, _log(shards, attempts, command, status), _junit(shards), status, trouble)


def _check_apart(shards: Sequence[Shard]) -> None:
    owner: dict[str, Shard] = {}
    for shard in shards:
        for nodeid in shard.tests:
            other = owner.setdefault(nodeid, shard)
            if other is not shard:
                raise MergeError(
                    f"{nodeid} is in {other.attempts[0].log} and in {shard.attempts[0].log}, which are no attempts at one shard: "
                    "merge each environment, and each run, by itself"
                )


def _log(shards: Sequence[Shard], attempts: Sequence[Attempt], command: str, status: int) -> str:
    counted = [shard.counted for shard in shards if shard.counted]
    once: dict[str, Entry] = {}
    for attempt in counted:
        for entry in attempt.others:
            # Each shard collects the same folders: said once is enough.
            once.setdefault(json.dumps([entry.get("$report_type"), entry.get("nodeid"), entry.get("outcome"), entry.get("message")]), entry)
    lines = list(once.values())
    for shard in shards:
        lines += [{**report, "assay_shard": shard.name} for reports in shard.tests.values() for report in reports]
        if shard.missing:
            lines.append(_collect_error(shard))
    if any(attempt.session for attempt in counted):
        lines.append(sessions.join(attempts, counted, (r for shard in shards for r in shard.tests.values()), command))
    lines.append({"exitstatus": status, "$report_type": "SessionFinish"})
    return "".join(json.dumps(line) + "\n" for line in lines)


def _collect_error(shard: Shard) -> Entry:
    """As pytest reports what kept it from tests."""
    return {
        "nodeid": shard.name,
        "outcome": "failed",
        "longrepr": shard.missing,
        "result": None,
        "sections": [],
        "$report_type": "CollectReport",
    }


def _junit(shards: Sequence[Shard]) -> ElementTree.Element:
    suites = []
    for shard in shards:
        suite = shard.counted.suite if shard.counted and shard.counted.complete else None
        whole = suite is not None
        suite = suite if suite is not None else ElementTree.Element("testsuite")
        suite.set("name", shard.name)
        for nodeid in shard.borrowed if whole else shard.tests:
            junit.put(suite, nodeid, shard.tests[nodeid])
        if shard.missing:
            junit.put_error(suite, shard.name, shard.missing)
        junit.count(suite)
        suites.append(suite)
    return junit.join(suites)


def write(merged: Merged, target: Path) -> tuple[Path, Path]:
    """Write both files, each whole or not at all; returns their paths. Raises MergeError where the log does not read back as merged."""
    log, xml = target.with_name(f"{target.name}.jsonl"), target.with_name(f"{target.name}.xml")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = next((path for path in (log, xml) if path.is_dir()), None)
    if folder:
        raise MergeError(f"{folder}: a folder; give -o another name")
    written = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in (log, xml)}
    try:
        written[log].write_text(merged.log, encoding="utf-8")
        ElementTree.ElementTree(merged.junit).write(written[xml], encoding="utf-8", xml_declaration=True)
        _check_readable(merged, written[log])
        for path, part in written.items():
            part.replace(path)
    finally:
        for part in written.values():
            part.unlink(missing_ok=True)
    return log, xml


def _check_readable(merged: Merged, part: Path) -> None:
    """What others will read of the log is what was merged: each test with a verdict, once."""
    try:
        results = sorted(result.test for result in read_run(part).results)
    except UnreadableRun as wrong:
        raise MergeError(str(wrong)) from None
    known = {str(v) for v in Verdict}
    judged = sorted(nodeid for shard in merged.shards for nodeid, reports in shard.tests.items() if verdict(reports) in known)
    if results != judged:
        raise MergeError(f"{len(judged)} results were merged, {len(results)} read back: the property `test` of some is not their node id")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module."""
    parser = argparse.ArgumentParser(prog="python -m ci.merge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="PATHS", nargs="+", type=Path, help="report logs, or folders of them; JUnit files lie beside them")
    parser.add_argument("-o", "--out", metavar="DIR/NAME", required=True, type=Path, help="the merged files, without suffix")
    given = sys.argv[1:] if arguments is None else arguments
    asked = parser.parse_args(given)
    try:
        if not asked.out.name:
            raise MergeError(f"-o {asked.out}: write DIR/NAME, of which NAME.jsonl and NAME.xml are made")
        logs = find_logs(asked.paths, besides=[asked.out.with_name(f"{asked.out.name}.jsonl")])
        if not logs:
            raise MergeError(f"{', '.join(map(str, asked.paths))}: no *.jsonl there; give what `python -m ci.run --out DIR` wrote")
        merged = merge(logs, command=shlex.join(["python", "-m", "ci.merge", *map(str, given)]))
        log, xml = write(merged, asked.out)
    except (MergeError, OSError) as wrong:
        print(f"ci.merge: {wrong}", file=sys.stderr)
        return 2
    tell(merged)
    print(f"merged {merged.tests} tests of {len(merged.shards)} shards into {log} and {xml}")
    return 1 if merged.trouble else 0


def tell(merged: Merged) -> None:
    """A line a shard, and what is wrong to stderr."""
    for shard in merged.shards:
        print(f"{shard.name}: {len(shard.tests)} tests, {len(shard.attempts)} attempts, exit status {shard.status}")
    for line in merged.trouble:
        print(f"ci.merge: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
