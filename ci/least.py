"""Least counts: a lane in which fewer claims hold than it commits fails, whatever the reasons of those that were skipped.

`python -m ci.least check --lane NAME RESULTS` holds runs to ci/least.toml; `python -m ci.least update` sets the counts from a recorded run.
A skip is green in pytest: a package that is gone, a card that is not seen or a suite that is deselected would pass unnoticed without this.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.collect import CollectError
from ci.lanes import Lane, LaneError, find_lane, read_lanes
from ci.least_counts import LEAST_TOML, Committed, LeastError, places, read_least, unfit, write_least
from ci.least_reached import Reached, WrongLane, lane_items, reached
from ci.least_update import Refused, committed_by
from harness.core.names import unknown
from harness.core.spec import RegistryError
from harness.report.runs import UnreadableRun, read_runs


def shortages(committed: Committed, found: Reached) -> list[str]:
    """A line for each engine and claim group in which fewer hold than are committed: what is committed, what was reached, and why."""
    places = [((engine, group), least) for engine, groups in sorted(committed.counts.items()) for group, least in sorted(groups.items())]
    return [
        f"LESS  {' '.join(place)}: {found.count(place)} of {least}: {found.why(place)}"
        for place, least in places
        if found.count(place) < least
    ]


def news(committed: Committed, found: Reached) -> list[str]:
    """A line for each engine and claim group in which some hold, and of which nothing is committed."""
    return [
        f"new   {engine} {group}: {count}, none committed"
        for engine, groups in found.counts().items()
        for group, count in groups.items()
        if group not in committed.counts.get(engine, {})
    ]


def unseen(found: Reached) -> list[str]:
    """A line for each thing that is wanting in a lane that commits nothing yet: all of its tests, and a claim that holds."""
    lines = [f"LESS  {engine} {group}: {count} not among the results" for (engine, group), count in sorted(found.absent.items())]
    return lines if found.counts() else [*lines, "LESS  no claim holds on any engine"]


def check(options: argparse.Namespace) -> int:
    """Exit code of `ci.least check`."""
    lane, environment = _place(options)
    least = read_least()
    wrong = unfit(least, read_lanes())
    if wrong:
        raise LeastError("\n".join(f"{LEAST_TOML}: {line}" for line in wrong))
    committed = least[lane.name, environment]
    found = reached(read_runs(options.results), lane_items(lane, environment), f"{lane.name}.{environment}")
    short = shortages(committed, found)
    print(*short, *news(committed, found), sep="\n", end="\n" if short or news(committed, found) else "")
    if committed.never:
        short = unseen(found)
        print(*short, f"{lane.name}.{environment}: never recorded: {committed.never}", sep="\n")
    else:
        groups = sum(map(len, committed.counts.values()))
        print(f"{lane.name}.{environment}: {groups - len(short)} of {groups} least counts reached, of {len(committed.counts)} engines")
    return 1 if short else 0


def update(options: argparse.Namespace) -> int:
    """Exit code of `ci.least update`."""
    lane, environment = _place(options)
    key = lane.name, environment
    least = read_least() if LEAST_TOML.exists() else {}
    if options.never:
        if least.get(key, Committed()).counts and not options.lower:
            raise Refused(f"{lane.name}.{environment} has counts; say --lower if they are to be given up")
        least[key] = Committed(never=options.never)
    else:
        items, runs = lane_items(lane, environment), read_runs(options.results)
        found = reached(runs, items, f"{lane.name}.{environment}")
        before = least.get(key, Committed())
        least[key] = committed_by(runs, found, items, before, lower=options.lower, although=options.although)
    kept = {key: value for key, value in least.items() if key in places(read_lanes())}
    for key in sorted(least.keys() - kept.keys()):
        print(f"dropped: {'.'.join(key)}: there is no such lane and environment")
    write_least(kept)
    engines = least[key].counts
    said = f"{sum(sum(g.values()) for g in engines.values())} claims of {len(engines)} engines" if engines else "never recorded"
    print(f"{LEAST_TOML}: {lane.name}.{environment}: {said}")
    return 0


def _place(options: argparse.Namespace) -> tuple[Lane, str]:
    """The lane and the environment that are meant; a lane with one environment need not name it."""
    lane = find_lane(options.lane, read_lanes())
    environment = options.environment or (lane.environments[0] if len(lane.environments) == 1 else "")
    if environment not in lane.environments:
        raise LaneError(f"--environment: {unknown(f'environment of lane {lane.name}', environment, lane.environments)}")
    return lane, environment


def main(arguments: Sequence[str] | None = None) -> int:
    """0: fine. 1: a lane reached less than it commits, or a run gives no counts. 2: wrong use, or a file that cannot be read."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is update and bool(options.never) is bool(options.results):
        parser.error("update takes RESULTS, or --never WHY")
    try:
        return options.command(options)
    except Refused as refused:
        print(f"ci.least: {refused}", file=sys.stderr)
        return 1
    except (LaneError, LeastError, WrongLane, UnreadableRun, CollectError, RegistryError) as wrong:
        print(f"ci.least: {wrong}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ci.least", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    checked = commands.add_parser("check", help="exit 1, and a line for each shortage, where fewer claims hold than are committed")
    changed = commands.add_parser("update", help="set the counts from a whole run that passed")
    for command, function, number in ((checked, check, "+"), (changed, update, "*")):
        command.add_argument("results", nargs=number, type=Path, metavar="RESULTS", help="report logs of the lane, or folders of them")
        command.add_argument("--lane", required=True, metavar="NAME", help="of ci/lanes.toml")
        command.add_argument("--environment", metavar="NAME", help="of the lane; needed where it has several")
        command.set_defaults(command=function)
    changed.add_argument("--lower", action="store_true", help="let counts become less than they are")
    changed.add_argument("--although", default="", metavar="WHY", help="record results that lack tests of the lane; the file says why")
    changed.add_argument("--never", default="", metavar="WHY", help="in place of results: why nobody could run the lane yet")
    return parser


if __name__ == "__main__":
    sys.exit(main())
