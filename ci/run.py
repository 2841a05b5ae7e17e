"""Runs one shard of one lane with the Python that runs this: `python -m ci.run --lane NAME [--shard I/N]`, on every CI system and by hand.

What it leaves in DIR (--out) is called after lane, environment and shard: `cpu-own-1.txt` holds the node ids, `cpu-own-1.jsonl` the report
log, `cpu-own-1.xml` the JUnit file. Further arguments of pytest follow `--`. A shard that has no tests runs nothing and is fine.

Exit status: pytest's own, and 128 more than the signal where it was killed; 1 where suites and lanes do not fit; 2 for wrong use. A shard
of several in which nothing was judged is fine: its tests tell why, and the lane's least counts say whether enough was judged. Past the
lane's minutes pytest is interrupted, which is its exit status 2, or killed where it does not end by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci.assign import AssignError
from ci.collect import CollectError
from ci.lanes import ROOT, LaneError
from ci.shard import Shard, Share, add_lane, shards, shares
from ci.timings import TimingsError, read_timings

GRACE = 60.0
"""Seconds that an interrupted pytest may take to close its engines and write its records, before it is killed."""

NOTHING_JUDGED = 5
"""pytest's status where no test was collected, and the plugin's where all were skipped."""


def command(share: Share, files: Path, extra: Sequence[str] = ()) -> list[str]:
    """What runs the node ids of FILES.txt, and records into FILES.jsonl and FILES.xml.

    Engines are named, so that one that is not here is UNAVAILABLE instead of absent. The marks select nothing anew; long drawings are run
    only where -m names soak.
    """
    labels = {item.nodeid.partition("[")[2].rpartition("@")[0] for item in share.items}
    engines = [word for label in sorted(labels) for word in ("--engine", label)]
    records = [f"--junit-xml={files}.xml", f"--report-log={files}.jsonl"]
    return [sys.executable, "-m", "pytest", f"@{files}.txt", "-m", share.lane.marks, *engines, *records, *extra]


def run(command: Sequence[str], minutes: float, root: Path = ROOT, grace: float = GRACE) -> int:
    """Run it in the checkout for at most so many minutes; its exit status."""
    process = subprocess.Popen(command, cwd=root)
    with _signals_left_to(process):
        try:
            status = process.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            print(f"ci.run: the lane's {minutes:g} minutes are over: interrupting pytest", file=sys.stderr, flush=True)
            status = _end(process, grace)
    return status if status >= 0 else 128 - status


def _end(process: subprocess.Popen[bytes], grace: float) -> int:
    """Its exit status, once it ended: nothing that ended in time by its own will is called a success."""
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(grace) or 1
    except subprocess.TimeoutExpired:
        print(f"ci.run: it did not end within {grace:g} s: killing it", file=sys.stderr, flush=True)
        process.kill()
        return process.wait()


@contextlib.contextmanager
def _signals_left_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches pytest by itself, with its process group; CI systems send SIGTERM to one process only."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM)),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.run", description="Runs one shard of one lane.", usage="%(prog)s [options] [-- PYTEST]"
    )
    add_lane(parser)
    parser.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="for the records (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="write the node ids, print the command, run nothing")
    parser.add_argument("pytest", nargs="*", help="more arguments of pytest, after --")
    return _shard(parser.parse_args(argv), root)


def _shard(asked: argparse.Namespace, root: Path) -> int:
    try:
        share, shard, of = _asked(asked.lane, asked.environment, asked.shard, root)
    except (LaneError, TimingsError) as wrong:
        print(f"ci.run: {wrong}", file=sys.stderr)
        return 2
    except (CollectError, AssignError) as wrong:
        print(*wrong.errors, sep="\n", file=sys.stderr)
        return 1
    name = f"{share.lane.name}-{share.environment}-{shard.index}"
    try:
        files = _write(asked.out / name, shard, keep_records=asked.dry_run)
    except OSError as wrong:
        print(f"ci.run: --out {asked.out}: {wrong}", file=sys.stderr)
        return 2
    if not shard.nodeids:
        print(f"ci.run: {name}: shard {shard.index}/{of} has no test: {len(share.items)} tests in {of} shards")
        return 0
    words = command(share, files, asked.pytest)
    print(f"ci.run: {name}: {len(shard.nodeids)} tests, about {shard.seconds:.0f} s", file=sys.stderr)
    print(f"cd {shlex.quote(str(root))} && {shlex.join(words)}", flush=True)
    if asked.dry_run:
        return 0
    status = run(words, share.lane.minutes, root)
    fine = status == NOTHING_JUDGED and of > 1
    if fine:
        print(f"ci.run: {name}: nothing was judged; the least counts of the lane see to it", file=sys.stderr)
    return 0 if fine else status


def _asked(lane: str, environment: str | None, shard: tuple[int, int] | None, root: Path) -> tuple[Share, Shard, int]:
    """The share of the lane, the shard of it, and of how many it is one."""
    found, timings = shares(lane, environment, root), read_timings(root / "ci" / "timings.json")
    if len(found) > 1:
        raise LaneError(f"lane {lane} has several environments; name one with --environment: {', '.join(s.environment for s in found)}")
    index, of = shard or (1, 1)
    return found[0], shards(found[0].items, timings, of)[index - 1], of


def _write(name: Path, shard: Shard, keep_records: bool) -> Path:
    """Write the node ids; what the files of the shard are called, less their ending. OSError where they cannot be written."""
    files = name.resolve()
    files.parent.mkdir(parents=True, exist_ok=True)
    for suffix in () if keep_records else (".jsonl", ".xml"):
        # Nobody must take an earlier run's records for those of a run that broke before it wrote any.
        Path(f"{files}{suffix}").unlink(missing_ok=True)
    Path(f"{files}.txt").write_text("".join(f"{nodeid}\n" for nodeid in shard.nodeids), encoding="utf-8")
    return files


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("ci.run: interrupted")
