"""How long tests and boots are expected to take: `python -m ci.timings update FILES...` learns it from recorded runs.

ci/timings.json holds the last KEEP measured times of each test, by its node id, and of each boot, by `engine@profile`: what is expected
is their median. Times are seconds. A test that was never measured is expected to take its share of its module's `est_time`.

Exit status: 0 written; 2 nothing written, since a file cannot be read or tells of no test of this checkout.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ci.collect import CollectError, collect
from ci.items import Item
from ci.lanes import ROOT
from harness.core.files import write_whole

TIMINGS_JSON = ROOT / "ci" / "timings.json"
KEEP = 5
"""Measured times that are kept of a test or boot: one run on a bad day then moves no median."""
_TABLES = ("boots", "tests")

Times = Mapping[str, tuple[float, ...]]
"""Node id or boot to its measured seconds, the newest last."""


class TimingsError(ValueError):
    """Timings, or a run to learn from, cannot be read; the text names the file and what to do."""


@dataclass(frozen=True)
class Timings:
    """What was measured."""

    tests: Times = field(default_factory=dict)
    boots: Times = field(default_factory=dict)

    def seconds(self, item: Item) -> float:
        """What the test is expected to take without its boot."""
        measured = self.tests.get(item.nodeid)
        return median(measured) if measured else item.seconds

    def boot_seconds(self, boot: str) -> float:
        """What a boot is expected to take. One that was never measured counts as the middle one of those that were: it is not free."""
        measured = self.boots.get(boot)
        return median(measured or [*map(median, self.boots.values())] or [0.0])


def read_timings(path: Path = TIMINGS_JSON) -> Timings:
    """The timings of a file; none where there is no file. Raises TimingsError."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Timings()
    except (OSError, ValueError) as wrong:
        raise TimingsError(f"{path}: {wrong}; `git checkout` brings the committed one back") from None
    if not isinstance(content, dict) or sorted(content) != list(_TABLES) or not all(isinstance(content[table], dict) for table in _TABLES):
        raise TimingsError(f"{path}: holds no objects {' and '.join(_TABLES)}; `git checkout` brings the committed one back")
    for name, times in (entry for table in _TABLES for entry in content[table].items()):
        if not isinstance(times, list) or not 1 <= len(times) <= KEEP or not all(map(is_time, times)):
            raise TimingsError(f"{path}: {name}: {times!r}: write 1 to {KEEP} numbers of seconds")
    tests, boots = ({name: tuple(times) for name, times in content[table].items()} for table in ("tests", "boots"))
    return Timings(tests, boots)


def is_time(value: object) -> bool:
    """Whether it is a number of seconds, 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def write_timings(timings: Timings, path: Path = TIMINGS_JSON) -> None:
    """Write the file whole: sorted, an entry a line."""
    written = [_table(name, times) for name, times in (("boots", timings.boots), ("tests", timings.tests))]
    write_whole(path, "{\n" + ",\n".join(written) + "\n}\n")


def _table(name: str, times: Times) -> str:
    lines = [f" {json.dumps(key)}: {json.dumps([round(time, 3) for time in times[key]])}" for key in sorted(times)]
    return f"{json.dumps(name)}: {{\n" + (",\n".join(lines) + "\n" if lines else "") + "}"


def updated(old: Timings, measured: Sequence[Timings], items: Sequence[Item]) -> tuple[Timings, list[str]]:
    """The old timings with those of each run, in the order given, and a line for each test that is there no more."""
    known = {item.nodeid: item.boot for item in items}
    runs = [old, *measured]
    tests = {name: _last(name, [run.tests for run in runs]) for name in known}
    boots = {name: _last(name, [run.boots for run in runs]) for name in set(known.values())}
    gone = sorted({name for run in runs for name in run.tests} - set(known))
    left = Timings({name: times for name, times in tests.items() if times}, {name: times for name, times in boots.items() if times})
    return left, [f"dropped {name}: there is no such test in this checkout" for name in gone]


def _last(name: str, runs: Sequence[Times]) -> tuple[float, ...]:
    return tuple(time for times in runs for time in times.get(name, ()))[-KEEP:]


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The command."""
    from ci.measured import measure

    parser = argparse.ArgumentParser(prog="python -m ci.timings", description="Expected times of tests and boots, ci/timings.json.")
    commands = parser.add_subparsers(dest="command", required=True)
    update = commands.add_parser("update", help="learn from runs, the oldest first")
    update.add_argument("files", nargs="+", type=Path, metavar="FILE", help="report logs (*.jsonl) and JUnit files (*.xml) of pytest's")
    asked = parser.parse_args(argv)
    path = root / "ci" / "timings.json"
    try:
        items = collect(root)
        old = read_timings(path)
        runs = measure(asked.files, items)
    except (CollectError, TimingsError) as wrong:
        print(f"ci.timings: {wrong}", file=sys.stderr)
        return 2
    timings, lines = updated(old, runs, items)
    write_timings(timings, path)
    print(
        *lines,
        f"{len(timings.tests)} of {len(items)} tests and {len(timings.boots)} boots have times, from {len(runs)} runs more",
        sep="\n",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
