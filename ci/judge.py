"""What the shards of a lane say together: `python -m ci.judge --lane NAME` merges them, counts what holds, and writes a report.

Each environment is merged by itself: two releases of one engine have tests of the same names. Each is held to the least counts, and all to
the known failures. Exits with 1 where a step fails, after all of them.
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


def merge(lane: Lane, results: Path, out: Path) -> bool:
    """Merge the shards of each environment into `out`/LANE-ENVIRONMENT.jsonl and .xml; whether none was wanting."""
    merged = [_run("ci.merge", results_of(results, lane, e), "-o", out / f"{lane.name}-{e}") for e in lane.environments]
    return all(merged)


def judge(lane: Lane, merged: Path, report: Path) -> bool:
    """Hold what is merged to the least counts and the known failures, and write the report; whether all of it went well."""
    logs = {environment: merged / f"{lane.name}-{environment}.jsonl" for environment in lane.environments}
    there = [log for log in logs.values() if log.is_file()]
    if not there:
        print(f"ci.judge: {merged} holds no {lane.name}-*.jsonl", file=sys.stderr)
        return False
    well = [_run("ci.least", "check", "--lane", lane.name, "--environment", e, log) for e, log in logs.items()]
    well += [_run("ci.known", "check", *there), _run("harness", "report", *there, "-o", report)]
    return all(well)


def _run(module: str, *arguments: str | Path) -> bool:
    command = ["-m", module, *map(str, arguments)]
    print(f"+ python {shlex.join(command)}", flush=True)
    return subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode == 0


def main(arguments: list[str] | None = None) -> int:
    """The command; 2 where there is no such lane."""
    parser = argparse.ArgumentParser(prog="python -m ci.judge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lane", required=True, metavar="NAME")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--results", type=Path, default="results", metavar="DIR", help="what `ci.run --out DIR/LANE/ENVIRONMENT` wrote")
    given.add_argument("--merged", type=Path, metavar="DIR", help="what `ci.ray_runner --out DIR` wrote")
    parser.add_argument("--out", type=Path, default="judged", metavar="DIR", help="DIR/LANE gets what comes of it (%(default)s)")
    asked = parser.parse_args(arguments)
    try:
        lane = find_lane(asked.lane, read_lanes())
    except LaneError as wrong:
        print(f"ci.judge: {wrong}", file=sys.stderr)
        return 2
    out = asked.out.resolve() / lane.name
    merged = asked.merged is not None or merge(lane, asked.results.resolve(), out)
    return int(not (judge(lane, (asked.merged or out).resolve(), out / "report") and merged))


if __name__ == "__main__":
    sys.exit(main())
