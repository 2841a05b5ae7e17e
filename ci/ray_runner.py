"""Runs a lane on a Ray cluster: `python -m ci.ray_runner --lane NAME [--environment ENV] [--address HOST:PORT] [--out DIR]`.

Each shard is a Ray task that asks a node for its cards and their class, and runs `python -m ci.run` in that node's checkout: the same
command as by hand and on every CI system. The checkout lies at one path on every node (--checkout), at the driver's commit, with Assay
installed in the Python that Ray runs in there; an engine's environment is built where it is not there yet, or --python names one. Ray's
own shipping of a folder would leave out .git, from which a record has its commit, and the environments, which take minutes to build and are
kept. Results come back through Ray.

A shard whose node or worker died is run again (--retries); one whose tests failed is not. When all are done with, DIR/NAME-ENV.jsonl and
.xml hold every test once (`ci.merge`), and the exit status is the worst of the shards', as pytest gives them: 2 interrupted, 3 a shard
came to no end, 1 tests failed, 5 nothing was run, 0. It is 2 also for wrong use.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ci.assign import AssignError
from ci.choose import worst
from ci.collect import CollectError
from ci.lanes import ROOT, Lane, LaneError, find_lane, read_lanes
from ci.merge import MergeError, merge, write
from ci.ray_cluster import Resources, declared, resources_of
from ci.ray_job import BROKEN, INTERRUPTED, Job, Rules
from ci.ray_task import commit_of
from ci.shard import Shard, Share, shards, shares
from ci.timings import TimingsError, read_timings

WRONG_USE = 2
SPARE = 900.0
"""Seconds beyond a lane's minutes, which `ci.run` keeps itself: for building an engine's environment, and for closing engines."""


class CannotStart(Exception):
    """Ray is not installed, or there is no cluster; the text says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.node:
            print(_declaration(*asked.node))
            return 0
        if asked.python and not asked.environment:
            raise LaneError("--python: give the --environment that it is of")
        if (asked.address or "").startswith("ray://"):
            raise CannotStart(f"--address {asked.address}: a Ray client cannot follow shards; run this on a node, with HOST:PORT")
        lane = find_lane(asked.lane, read_lanes())
        jobs = plan(lane, asked)
        with _connected(asked.address):
            return run(lane, jobs, asked)
    except (LaneError, CollectError, AssignError, TimingsError, CannotStart, ValueError) as wrong:
        print(f"ci.ray_runner: {wrong}", file=sys.stderr)
        return WRONG_USE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ci.ray_runner", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--lane", metavar="NAME", help="a lane of ci/lanes.toml")
    what.add_argument("--node", metavar=("CLASS", "CARDS"), nargs=2, help="print what `ray start` is given on a node with such cards")
    parser.add_argument("--environment", metavar="ENV", help="one of the lane's; each of them without this")
    parser.add_argument("--address", metavar="HOST:PORT", help="the cluster's; $RAY_ADDRESS, or the cluster of this machine, without this")
    parser.add_argument("--shards", metavar="N", type=_from(1), help="of each environment; as the lane says without this")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("results"), help="where the merged files go (results)")
    parser.add_argument("--retries", metavar="N", type=_from(0), default=2, help="how often a shard that died is run again (2)")
    parser.add_argument("--cpus", metavar="N", type=_from(1), default=1, help="CPUs that a shard asks for (1)")
    parser.add_argument("--checkout", metavar="PATH", type=Path, default=ROOT, help="the checkout on every node (this one's path)")
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="the Python on every node (of `own` the one that Ray runs in there, else the environment's)",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=_from(1),
        help="the limit of one attempt (the lane's minutes and 15 more)",
    )
    parser.add_argument("--patience", metavar="S", type=_from(0), default=300, help="how long no node may be able to run a shard (300)")
    parser.add_argument("--max-mib", metavar="N", type=_from(1), default=256, help="the most that a shard's files may come to (256)")
    return parser


def _from(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from {least} on")
        return int(text)

    return number


def _declaration(card_class: str, cards: str) -> str:
    return f"ray start ... --num-gpus={int(cards)} --resources='{json.dumps(declared(card_class, int(cards)))}'"


def plan(lane: Lane, asked: argparse.Namespace) -> dict[str, list[Job]]:
    """Environment to its shards that have tests. Raises what `ci.shard.shares` does."""
    timings, count, resources = read_timings(), asked.shards or lane.shards, resources_of(lane, asked.cpus)
    return {
        share.environment: [_job(share, shard, count, resources) for shard in shards(share.items, timings, count) if shard.nodeids]
        for share in shares(lane.name, asked.environment)
    }


def _job(share: Share, shard: Shard, count: int, resources: Resources) -> Job:
    lane, environment = share.lane.name, share.environment
    command = ("-m", "ci.run", "--lane", lane, "--environment", environment, "--shard", f"{shard.index}/{count}")
    return Job(f"{lane}-{environment}-{shard.index}", environment, shard.nodeids, command, resources)


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """This process as a driver of the cluster. Raises CannotStart."""
    try:
        import ray
    except ImportError:
        raise CannotStart("Ray is not installed; pip install 'assay-conformance[ray]', or pip install -e '.[ray]' in a checkout") from None
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, TimeoutError, ValueError, RuntimeError) as wrong:
        told = str(wrong).partition("\n")[0]
        raise CannotStart(f"{told} (start a cluster with `ray start --head`, or name one with --address)") from None
    # A CI system ends a job with this signal; Ray has one of its own for it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        ray.shutdown()


def run(lane: Lane, planned: dict[str, list[Job]], asked: argparse.Namespace) -> int:
    """Run the shards of all environments at once, and merge each environment's; returns the exit status."""
    from ci.ray_shards import Shards

    order = {
        "checkout": str(asked.checkout),
        "python": asked.python,
        "platform": lane.platform,
        "commit": commit_of(ROOT),
        "most_bytes": asked.max_mib * 2**20,
    }
    rules = Rules(asked.retries, asked.seconds or 60 * lane.minutes + SPARE, asked.patience, order)
    jobs = [job for own in planned.values() for job in own]
    with tempfile.TemporaryDirectory(prefix="assay-ray-") as folder:
        running = Shards(jobs, rules, Path(folder), _say)
        statuses = []
        try:
            running.run()
        except KeyboardInterrupt:
            statuses.append(INTERRUPTED)
        statuses += running.statuses.values()
        statuses += [_merge(f"{lane.name}-{environment}", own, Path(folder), asked.out) for environment, own in planned.items() if own]
    status = worst(statuses)
    _say(f"lane {lane.name}: {len(jobs)} shards, exit status {status}")
    return status


def _merge(name: str, jobs: Sequence[Job], folder: Path, out: Path) -> int:
    """Merge the attempts at these shards; where that cannot be done, keep them as they are."""
    logs = sorted(log for job in jobs for log in folder.glob(f"*/{job.name}.jsonl"))
    try:
        command = shlex.join(["python", "-m", "ci.ray_runner", *sys.argv[1:]])
        merged = merge(logs, command=command, expected={job.name: job.tests for job in jobs})
        log, xml = write(merged, out / name)
    except (MergeError, OSError) as wrong:
        kept = shutil.copytree(folder, out / f"{name}-attempts", dirs_exist_ok=True)
        _say(f"{name}: not merged: {wrong}; the files of all attempts are in {kept}")
        return BROKEN
    for line in merged.trouble:
        _say(line)
    _say(f"{name}: {merged.tests} tests of {len(jobs)} shards in {log} and {xml}")
    return merged.status


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
