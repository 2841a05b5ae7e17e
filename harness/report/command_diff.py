"""`assay report diff OLD NEW`: exit status 0, 1 where something got worse, 2 for files that are no recorded runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.core.claims import ClaimError, read_claims
from harness.core.files import write_whole
from harness.report import diff, diff_pages
from harness.report.runs import RecordedRun, UnreadableRun, read_runs

SUITES = Path(__file__).parents[2] / "suites"


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status. Prints the Markdown unless -o names a file for it."""
    args = _parser().parse_args(argv)
    try:
        made = {claim.id for claim in read_claims([SUITES])}
        found = diff.compare(_read("OLD", args.old), _read("NEW", args.new), made)
        if args.out:
            _write(args.out, diff_pages.to_markdown(found))
        else:
            print(diff_pages.to_markdown(found), end="")
        if args.html:
            _write(args.html, diff_pages.to_html(found))
    except (UnreadableRun, ClaimError, OSError) as wrong:
        print(f"assay report diff: {wrong}", file=sys.stderr)
        return 2
    return 1 if found.regressions else 0


def _parser() -> argparse.ArgumentParser:
    what = "what changed between recorded runs; exit status 1 where something got worse"
    parser = argparse.ArgumentParser(prog="assay report diff", description=what)
    for name in ("old", "new"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="what pytest --report-log=FILE wrote, or a folder of such files")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE.md", help="write the Markdown there instead of printing it")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page there, with every row")
    return parser


def _read(side: str, path: Path) -> list[RecordedRun]:
    if not path.exists():
        raise UnreadableRun(f"{side}: {path} does not exist; give a file or folder of recorded runs")
    return read_runs([path])


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
