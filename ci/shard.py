"""Splits a lane's tests over jobs by expected time: `python -m ci.shard --lane NAME` prints what each shard runs.

    python -m ci.shard --lane cpu                               each test with its shard, then a line for each shard and one for all
    python -m ci.shard --lane cpu --shards 8                    into eight instead of what the lane says
    python -m ci.shard --lane cpu --shard 2/8 -o shard.txt      the node ids of one: `pytest @shard.txt`

Exit status: 0; 1 where suites and lanes do not fit; 2 for a lane, environment or shard that there is not.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ci.assign import AssignError, assign
from ci.collect import CollectError, collect
from ci.items import Item
from ci.lanes import ROOT, Lane, LaneError, find_lane, read_lanes
from ci.timings import Timings, TimingsError, read_timings
from harness.core import partition
from harness.core.files import write_whole
from harness.core.names import unknown


@dataclass(frozen=True)
class Shard:
    """What one job runs. `index` counts from 1; `nodeids` are in pytest's order; `seconds` is expected, boots included."""

    index: int
    nodeids: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Share:
    """A lane's tests in one environment."""

    lane: Lane
    environment: str
    items: tuple[Item, ...]


def jobs(items: Sequence[Item], timings: Timings) -> list[partition.Job]:
    """The items as work to be split.

    A test that builds its own engine counts with the boot of its engine, too: what the first boot of a process imports, it needs as well.
    """
    return [partition.Job(item.nodeid, timings.seconds(item), item.boot, timings.boot_seconds(item.boot)) for item in items]


def shards(items: Sequence[Item], timings: Timings, n: int) -> list[Shard]:
    """The items in `n` shards, the longest first, each item in exactly one; some are empty where there are fewer items than that."""
    order = {item.nodeid: number for number, item in enumerate(items)}
    parts = partition.partition(jobs(items, timings), n)
    return [
        Shard(index, tuple(sorted((job.name for job in part), key=order.__getitem__)), partition.seconds(part))
        for index, part in enumerate(parts, start=1)
    ]


def shares(lane: str, environment: str | None, root: Path = ROOT) -> list[Share]:
    """The lane's tests in that environment, or in each of its environments.

    Raises LaneError for a lane or environment that there is not, CollectError and AssignError for suites and lanes that do not fit.
    """
    lanes = read_lanes(root / "ci" / "lanes.toml")
    found = find_lane(lane, lanes)
    if environment is not None and environment not in found.environments:
        raise LaneError(f"lane {lane}: {unknown('environment', environment, found.environments)}")
    taken = assign(collect(root), lanes)[lane]
    return [Share(found, name, with_options(found, taken[name])) for name in found.environments if environment in (None, name)]


def with_options(lane: Lane, items: Sequence[Item]) -> tuple[Item, ...]:
    """The items under the names that pytest gives them with the lane's options."""
    labels = {named.partition(":")[0]: named for named in lane.options}
    return tuple(
        replace(item, nodeid=f"{item.nodeid.partition('[')[0]}[{labels[item.engine]}@{item.profile}]") if item.engine in labels else item
        for item in items
    )


def add_lane(parser: argparse.ArgumentParser) -> None:
    """The options that name a lane, an environment and a shard."""
    parser.add_argument("--lane", required=True, metavar="NAME", help="of ci/lanes.toml")
    parser.add_argument("--environment", metavar="ENV", help="of the lane's (default: all of them, or the only one)")
    parser.add_argument("--shard", type=_shard, metavar="I/N", help="the first of two is 1/2")


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r}: write I/N, the first of two as 1/2")
    return int(found[1]), int(found[2])


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of shards, 1 or more")
    return int(text)


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m ci.shard", description="Splits a lane's tests over jobs by expected time.")
    add_lane(parser)
    parser.add_argument("--shards", type=_count, metavar="N", help="in place of the lane's own number")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="written in place of printed")
    asked = parser.parse_args(argv)
    if asked.shard and asked.shards:
        parser.error("--shard I/N says the number of shards already; leave --shards out")
    try:
        found, timings = shares(asked.lane, asked.environment, root), read_timings(root / "ci" / "timings.json")
    except (LaneError, TimingsError) as wrong:
        print(f"ci.shard: {wrong}", file=sys.stderr)
        return 2
    except (CollectError, AssignError) as wrong:
        print(*wrong.errors, sep="\n", file=sys.stderr)
        return 1
    if asked.shard and len(found) > 1:
        parser.error(
            f"--shard: lane {asked.lane} has several environments; name one with --environment: {', '.join(s.environment for s in found)}"
        )
    lines = (
        _nodeids(found[0], timings, *asked.shard) if asked.shard else [line for own in found for line in _rows(own, timings, asked.shards)]
    )
    text = "".join(f"{line}\n" for line in lines)
    if asked.output:
        write_whole(asked.output, text)
    else:
        sys.stdout.write(text)
    return 0


def _nodeids(share: Share, timings: Timings, index: int, n: int) -> Sequence[str]:
    return shards(share.items, timings, n)[index - 1].nodeids


def _rows(share: Share, timings: Timings, n: int | None) -> Iterator[str]:
    n = n or share.lane.shards
    split = shards(share.items, timings, n)
    name = f"{share.lane.name} {share.environment}"
    for shard in split:
        yield from (f"{name} {shard.index}/{n}  {nodeid}" for nodeid in shard.nodeids)
    for shard in split:
        yield f"{name} {shard.index}/{n}: {len(shard.nodeids)} tests, about {shard.seconds:.1f} s"
    bound = partition.lower_bound(jobs(share.items, timings), n)
    yield f"{name}: {len(share.items)} tests; longest shard {split[0].seconds:.1f} s, no split has less than {bound:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
