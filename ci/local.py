"""Runs a whole lane on this machine and judges it: `python -m ci.local --lane NAME`, for instance from cron.

Environments are built where they are not there, and run one after the other. Exits with 1 where tests fail or the judging does, after
everything has run.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from pathlib import Path

from ci.engine_env import CannotBuild, build
from ci.judge import judge, merge, results_of
from ci.lanes import OWN, ROOT, Lane, LaneError, find_lane, read_lanes


def run_lane(lane: Lane, results: Path, arguments: list[str]) -> bool:
    """Run the lane's tests in each of its environments; whether all passed. `arguments` go to pytest."""
    passed = [_run(lane, environment, results, arguments) for environment in lane.environments]
    return all(passed)


def _run(lane: Lane, environment: str, results: Path, arguments: list[str]) -> bool:
    try:
        python = Path(sys.executable) if environment == OWN else build(ROOT, environment, lane.platform)
    except (CannotBuild, subprocess.CalledProcessError) as wrong:
        print(f"ci.local: {environment}: {wrong}", file=sys.stderr)
        return False
    out = results_of(results, lane, environment)
    command = [
        python,
        "-m",
        "ci.run",
        "--lane",
        lane.name,
        "--environment",
        environment,
        "--out",
        out,
        *(["--", *arguments] if arguments else []),
    ]
    return subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode == 0


def main(arguments: list[str] | None = None) -> int:
    """The command; 2 where there is no such lane."""
    parser = argparse.ArgumentParser(prog="python -m ci.local", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lane", required=True, metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results and the report go; default: results/NAME-TIME")
    parser.add_argument("pytest", nargs="*", metavar="-- PYTEST", help="more arguments of pytest")
    asked = parser.parse_args(arguments)
    try:
        lane = find_lane(asked.lane, read_lanes())
    except LaneError as wrong:
        print(f"ci.local: {wrong}", file=sys.stderr)
        return 2
    # A folder that holds another run's results would be merged with this one's.
    out = (asked.out or ROOT / "results" / f"{lane.name}-{datetime.datetime.now(datetime.timezone.utc):%Y%m%dT%H%M%SZ}").resolve()
    if out.exists() and any(out.iterdir()):
        print(f"ci.local: --out {out}: is not empty; name another folder", file=sys.stderr)
        return 2
    passed = run_lane(lane, out / "shards", asked.pytest)
    merged = merge(lane, out / "shards", out)
    return int(not (judge(lane, out, out / "report") and merged and passed))


if __name__ == "__main__":
    sys.exit(main())
