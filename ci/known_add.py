"""A new entry of known_failures.toml, made from what a run recorded."""

from __future__ import annotations

import datetime
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from harness.core.files import write_whole
from harness.core.known_failures import EXCUSED, PASSED, KnownFailure, KnownFailureError, load, parse
from harness.core.names import unknown
from harness.report.runs import RecordedRun, Result

UNFILED = "not filed"


class Refused(ValueError):
    """The run gives no ground for such an entry; the text says why."""


def entry_of(
    run: RecordedRun,
    engine: str,
    claim: str,
    *,
    evidence: str,
    issue: str,
    owner: str,
    look_again: datetime.date | None,
    days: int,
) -> KnownFailure:
    """The entry that excuses the claim's failure on that engine, as the run has it. `look_again` is `days` after the run, unless given.

    Raises Refused where the claim did not fail there, or the run does not say enough.
    """
    result = _failed(run, engine, claim)
    if issue != UNFILED and not issue.startswith(("https://", "http://")):
        raise Refused(f"--issue {issue!r}: give a link, or {UNFILED!r}")
    opened = _day(run)
    again = look_again or opened + datetime.timedelta(days=days)
    if again <= opened:
        raise Refused(f"--look-again {again}: the run is of {opened}; give a later day")
    fields = {"evidence": evidence, "issue": issue, "owner": owner, "opened": opened, "look_again": again}
    table = {"engine": engine, "versions": [result.version], "claim": claim, "verdict": result.verdict.value, **fields}
    return KnownFailure.parse("the new entry", table)


def _failed(run: RecordedRun, engine: str, claim: str) -> Result:
    """The result that the entry is made from."""
    there = {result.label.rpartition("@")[0] for result in run.results}
    if engine not in there:
        raise Refused(f"--engine: {unknown('engine of this run', engine, there)}")
    mine = [result for result in run.results if result.label.rpartition("@")[0] == engine and result.claim == claim]
    if not mine:
        claims = {result.claim for result in run.results}
        raise Refused(f"--claim: {unknown('claim of this run', claim, claims)}")
    if any(result.fault for result in mine):
        raise Refused(f"{run.path}: a fault was planted ({mine[0].fault}); give a run without one")
    if any(result.reason.startswith(PASSED) for result in mine):
        raise Refused(f"{claim} on {engine} passed: delete its entry")
    failed = [result for result in mine if result.verdict in EXCUSED]
    if not failed:
        raise Refused(f"{claim} on {engine} did not fail in {run.path}: {', '.join(str(result.verdict) for result in mine)}")
    if len({(result.verdict, result.version) for result in failed}) > 1:
        told = ", ".join(f"{result.verdict} on {result.label} {result.version}" for result in failed)
        raise Refused(f"{claim}: {told}; give a run of one of them")
    if not failed[0].version:
        raise Refused(f"{run.path} does not say which version of {engine} ran")
    return failed[0]


def _day(run: RecordedRun) -> datetime.date:
    try:
        return datetime.datetime.fromisoformat(str(run.session.get("started"))).date()
    except ValueError:
        raise Refused(f"{run.path} does not say when it started: it was ended early; run it again, to its end") from None


def append(path: Path, entry: KnownFailure) -> None:
    """Write the file with the entry as its last; all else stays as it is, comments included.

    Raises Refused for one that an entry of the file has already, KnownFailureError for a file that cannot be read.
    """
    before = load(path)
    for number, other in enumerate(before, start=1):
        if any(other.excuses(entry.engine, version, entry.claim) for version in entry.versions):
            raise Refused(f"{path}: failure {number} excuses {entry.claim} on {entry.engine} {', '.join(entry.versions)} already")
    text = _with(path.read_text(encoding="utf-8") if path.exists() else "", entry, path)
    if parse(text, str(path)) != [*before, entry]:
        raise KnownFailureError(f"{path}: what would be written does not read back as it should; add the entry by hand")
    write_whole(path, text)


def _with(text: str, entry: KnownFailure, path: Path) -> str:
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as wrong:
        raise KnownFailureError(f"{path}: {wrong}") from None
    table = tomlkit.table()
    for key, value in vars(entry).items():
        table.add(key, list(value) if isinstance(value, tuple) else getattr(value, "value", value))
    if "failure" not in document:
        document.add("failure", tomlkit.aot())
    document["failure"].append(table)  # type: ignore[union-attr]
    return tomlkit.dumps(document)
