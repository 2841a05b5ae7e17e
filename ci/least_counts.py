"""ci/least.toml: how many claims of each group a lane commits to see hold, engine by engine. Its types, and the reading and writing of it.

    [cpu.own]
    recorded = "2026-12-01, commit 16c929a2"
    [cpu.own."duplex/reference@cpu"]
    "duplex.isolation" = 12

A lane and environment that nobody could run yet says why in place of that: `never = "..."`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

from ci.lanes import ROOT, Lane
from harness.core.files import write_whole
from harness.core.names import unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEAST_TOML = ROOT / "ci" / "least.toml"
HEADER = """\
# The least number of claims that hold (PASS or KNOWN) in each lane and environment, by engine and claim group. Fewer fails the lane,
# whatever the reasons of those that were skipped. Written by `python -m ci.least update`, checked by `python -m ci.least check`.

"""


class LeastError(ValueError):
    """The file cannot be read, or its content fits no lane; the text names the file and the table."""


@dataclass(frozen=True)
class Committed:
    """What one lane commits in one environment.

    counts: engine label with profile (`duplex/reference@cpu`) to claim group to the least count, 1 or more. recorded: the run that they
    come from. never: why there is none; then `counts` and `recorded` are empty.
    """

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    recorded: str = ""
    never: str = ""


Least = dict[tuple[str, str], Committed]
"""(lane, environment) to what it commits."""


def read_least(path: Path = LEAST_TOML) -> Least:
    """The content of the file. Raises LeastError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as wrong:
        raise LeastError(f"{path}: {wrong}") from None
    return {
        (lane, environment): _committed(f"{path}: {lane}.{environment}", table)
        for lane, environments in content.items()
        for environment, table in _table(f"{path}: {lane}", environments).items()
    }


def _committed(where: str, table: object) -> Committed:
    content = dict(_table(where, table))
    recorded, never = content.pop("recorded", ""), content.pop("never", "")
    if not isinstance(recorded, str) or not isinstance(never, str) or bool(recorded.strip()) is bool(never.strip()):
        raise LeastError(f"{where}: write either recorded, the run that the counts come from, or never, why there is none")
    if bool(recorded) is not bool(content):
        raise LeastError(f"{where}: counts stand with recorded, and with it alone; run python -m ci.least update")
    for engine, groups in content.items():
        for group, count in _table(f"{where}.{engine}", groups).items():
            if type(count) is not int or count < 1:
                raise LeastError(f"{where}.{engine}: {group} = {count!r}: write a number of claims, 1 or more")
    return Committed(content, recorded, never)


def _table(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise LeastError(f"{where} = {value!r}: write a table that is not empty")
    return value


def places(lanes: Iterable[Lane]) -> list[tuple[str, str]]:
    """Every lane with each of its environments."""
    return [(lane.name, environment) for lane in lanes for environment in lane.environments]


def unfit(least: Least, lanes: Iterable[Lane]) -> list[str]:
    """A line for each lane and environment that the file lacks, and for each of the file that there is not."""
    there = places(lanes)
    lacking = [f"{'.'.join(key)}: no least counts; {_how(*key)}" for key in there if key not in least]
    names = [".".join(key) for key in there]
    return lacking + [unknown("lane and environment", ".".join(key), names) for key in least if key not in there]


def _how(lane: str, environment: str) -> str:
    return f"run python -m ci.least update --lane {lane} --environment {environment} RESULTS, or say --never WHY"


def write_least(least: Least, path: Path = LEAST_TOML) -> None:
    """Write the file, sorted; all of it or nothing."""
    content: dict[str, dict[str, Any]] = {}
    for (lane, environment), committed in sorted(least.items()):
        said = {"never": committed.never} if committed.never else {"recorded": committed.recorded}
        counts = {engine: dict(sorted(groups.items())) for engine, groups in sorted(committed.counts.items())}
        content.setdefault(lane, {})[environment] = said | counts
    write_whole(path, HEADER + tomlkit.dumps(content))
