"""What the shards of a lane say together: `python -m ci.judge --lane NAME` merges them, counts what holds, and writes a report.

Each environment is merged by itself: two releases of one engine have tests of the same names. Exits with 1 where a step fails, after all
of them.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from ci.lanes import ROOT, Lane, LaneError, find_lane, read_lanes


def results_of(results: Path, lane: Lane, environment: str) -> Path:
    """Where the shards of a lane in one environment write to."""
    return results / lane.name / environment


def judge(lane: Lane, results: Path, out: Path) -> bool:
    """Merge, hold to the least counts, report; whether all of it went well. Files come to `out`, each named after the lane."""
    merged = {environment: out / lane.name / environment for environment in lane.environments}
    well = []
    for environment, to in merged.items():
        well.append(_run("ci.merge", results_of(results, lane, environment), "-o", to))
        well.append(_run("ci.least", "check", "--lane", lane.name, "--environment", environment, to.with_name(f"{environment}.jsonl")))
    logs = [log for log in (to.with_name(f"{environment}.jsonl") for environment, to in merged.items()) if log.is_file()]
    return bool(logs) and _run("harness", "report", *logs, "-o", out / lane.name / "report") and all(well)


def _run(module: str, *arguments: str | Path) -> bool:
    command = ["-m", module, *map(str, arguments)]
    print(f"+ python {shlex.join(command)}", flush=True)
    return subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode == 0


def main(arguments: list[str] | None = None) -> int:
    """The command; 2 where there is no such lane."""
    parser = argparse.ArgumentParser(prog="python -m ci.judge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lane", required=True, metavar="NAME")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="what `ci.run --out DIR/LANE/ENVIRONMENT` wrote"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("judged"), metavar="DIR", help="DIR/LANE gets what is merged and the report (%(default)s)"
    )
    asked = parser.parse_args(arguments)
    try:
        lane = find_lane(asked.lane, read_lanes())
    except LaneError as wrong:
        print(f"ci.judge: {wrong}", file=sys.stderr)
        return 2
    return int(not judge(lane, asked.results.resolve(), asked.out.resolve()))


if __name__ == "__main__":
    sys.exit(main())
