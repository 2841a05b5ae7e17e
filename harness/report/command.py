"""`assay report RESULTS... -o DIR`: exit status 0, or 2 for files that are no recorded runs and a folder that cannot be written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.core import known_failures
from harness.core.claims import Claim, ClaimError, read_claims
from harness.report.benches import read_benches
from harness.report.plots import pictures
from harness.report.runs import UnreadableRun, read_runs
from harness.report.site import write_site

ROOT = Path(__file__).parents[2]
DEFAULT = Path("results/report")


def main(argv: Sequence[str]) -> int:
    """Run the command; prints the path of the site's first page and returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        for path in args.results:
            if not path.exists():
                raise UnreadableRun(f"{path} does not exist; give what pytest --report-log=FILE wrote, or a folder of such files")
        runs = read_runs(path for path in args.results if path.suffix != ".json")
        if not any(run.results for run in runs):
            raise UnreadableRun(f"no result in {', '.join(map(str, args.results))}; give what pytest --report-log=FILE wrote")
        known = known_failures.load(ROOT / "ci/known_failures.toml")
        benches = read_benches(path for path in args.results if path.is_dir() or path.suffix == ".json")
        index = write_site(runs, args.out, _made(), known, pictures(runs, benches))
    except (UnreadableRun, known_failures.KnownFailureError, OSError) as wrong:
        print(f"assay report: {wrong}", file=sys.stderr)
        return 2
    print(index)
    return 0


def _parser() -> argparse.ArgumentParser:
    what = "recorded runs as a static site: which engine keeps which claim, how strong the evidence is, what changed"
    parser = argparse.ArgumentParser(prog="assay report", description=what, epilog="`assay report diff OLD NEW` compares two runs.")
    told = "what pytest --report-log=FILE.jsonl or assay bench --json FILE.json wrote, or folders of such files; the newest result stands"
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULTS", help=told)
    parser.add_argument("-o", "--out", type=Path, default=DEFAULT, metavar="DIR", help="where the pages are written (%(default)s)")
    return parser


def _made() -> list[Claim]:
    """The claims of this checkout, with paths from its root; none where there are no suites or they cannot be read."""
    try:
        claims = read_claims([ROOT / "suites"])
    except (ClaimError, SyntaxError, OSError):
        return []
    return [Claim(c.id, c.level, c.source, c.sentence, c.where.removeprefix(f"{ROOT}/"), c.requires) for c in claims]
