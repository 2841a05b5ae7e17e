"""Known failures: `python -m ci.known check` says which entries are due, `python -m ci.known add` makes one from a failed run.

A person who runs the suites on an engine is only told of an entry that is to be looked at again: the promise is not theirs. CI fails for
it, here or by `pytest --strict-known`, so that an entry is looked at and not forgotten.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ci.known_add import Refused, append, entry_of
from ci.lanes import ROOT
from harness.core.claims import ClaimError, read_claims
from harness.core.known_failures import PASSED, KnownFailure, KnownFailureError, check_names, load
from harness.core.registry import builtin_specs
from harness.core.spec import EngineSpec, RegistryError
from harness.core.verdict import Verdict
from harness.report.runs import Result, UnreadableRun, read_run, read_runs

KNOWN_FAILURES_TOML = ROOT / "ci" / "known_failures.toml"
DAYS = 90
"""After how many days an entry is looked at again, unless it says otherwise."""


def asked(result: Result) -> str:
    """The engine of a result as --engine takes it: its label without the profile."""
    return result.label.rpartition("@")[0]


def problems(entries: Iterable[KnownFailure], results: Iterable[Result], specs: Iterable[EngineSpec], today: datetime.date) -> list[str]:
    """A line for each entry that is due, that excuses no version in use, or that the results have no use for."""
    honest, engines, found = [result for result in results if not result.fault], list(specs), []
    for entry in entries:
        mine = [result for result in honest if entry.excuses(asked(result), result.version, result.claim)]
        told = (_expired(entry, today), _untested(entry, engines), _unmatched(entry, mine))
        found += [f"{entry.claim} on {entry.engine}: {problem}" for problem in told if problem]
    return found


def _expired(entry: KnownFailure, today: datetime.date) -> str:
    if not entry.is_expired(today):
        return ""
    return f"EXPIRED: {entry.owner} was to look again by {entry.look_again}; do so, and set look_again to a later day or delete the entry"


def _untested(entry: KnownFailure, specs: Iterable[EngineSpec]) -> str:
    name = entry.engine.partition(":")[0]
    tested = {version for spec in specs if fnmatchcase(spec.name, name) for version in spec.tested}
    gone = sorted(set(entry.versions) - tested) if tested else []
    return f"UNTESTED: version {', '.join(gone)} is tested no more (harness/engines.toml); take it out of versions" if gone else ""


def _unmatched(entry: KnownFailure, results: Sequence[Result]) -> str:
    """What the results of its engine, version and claim say against it. Where there is none, or none could run, nothing."""
    reached = [result for result in results if result.verdict is not Verdict.UNAVAILABLE]
    if any(result.reason.startswith(PASSED) for result in reached):
        return "PASSED: the claim holds; delete the entry"
    # Its own verdict, unexcused: the run is older than the entry.
    matching = {Verdict.KNOWN, entry.verdict} | (set() if entry.strict else {Verdict.PASS})
    if not reached or any(result.verdict in matching for result in reached):
        return ""
    came = ", ".join(sorted({f"{result.verdict} ({result.reason})" for result in reached}))
    return f"UNMATCHED: it excuses a {entry.verdict}, and the run says {came}; delete or mend the entry"


def check(options: argparse.Namespace) -> int:
    """Exit code of `ci.known check`."""
    entries = _entries()
    results = [result for run in read_runs(options.results) for result in run.results]
    found = problems(entries, results, builtin_specs(), options.today)
    print(*found, f"{len(entries)} known failures, {len(found)} to see to", sep="\n")
    return 1 if found else 0


def add(options: argparse.Namespace) -> int:
    """Exit code of `ci.known add`."""
    run = read_run(options.results)
    fields = {key: getattr(options, key) for key in ("evidence", "issue", "owner")}
    entry = entry_of(run, options.engine, options.claim, look_again=options.look_again, days=DAYS, **fields)
    _check_names([*_entries(), entry])
    append(KNOWN_FAILURES_TOML, entry)
    print(f"added to {KNOWN_FAILURES_TOML}: {entry.claim} on {entry.engine} {', '.join(entry.versions)}, {entry.verdict}")
    return 0


def _entries() -> list[KnownFailure]:
    entries = load(KNOWN_FAILURES_TOML)
    _check_names(entries)
    return entries


def _check_names(entries: Sequence[KnownFailure]) -> None:
    check_names(entries, [spec.name for spec in builtin_specs()], {claim.id for claim in read_claims([ROOT / "suites"])})


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing to see to. 1: something is. 2: wrong use, or a file that cannot be read."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except Refused as refused:
        print(f"ci.known: {refused}", file=sys.stderr)
        return 1
    except (KnownFailureError, UnreadableRun, ClaimError, RegistryError) as wrong:
        print(f"ci.known: {wrong}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ci.known", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    checked = commands.add_parser("check", help="exit 1 for entries that are due, that passed, or that excuse nothing in the runs given")
    checked.add_argument("results", nargs="*", type=Path, metavar="RESULTS", help="report logs, or folders of them")
    checked.add_argument("--today", type=_date, default=datetime.datetime.now(datetime.timezone.utc).date(), metavar="DATE")
    checked.set_defaults(command=check)
    added = commands.add_parser("add", help="append an entry made from a run in which the claim failed")
    added.add_argument("results", type=Path, metavar="RESULTS", help="the run's report log")
    added.add_argument("--engine", required=True, metavar="NAME[:option=value,...]", help="as the run had it")
    added.add_argument("--claim", required=True)
    added.add_argument("--evidence", required=True, help="what was seen, on what machine, with what command, and the script that shows it")
    added.add_argument("--issue", required=True, help='a link, or "not filed"')
    added.add_argument("--owner", required=True, help="who follows it up")
    added.add_argument("--look-again", type=_date, metavar="DATE", help=f"default: {DAYS} days after the run")
    added.set_defaults(command=add)
    return parser


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write a date, as in 2026-12-31") from None


if __name__ == "__main__":
    sys.exit(main())
