"""The lanes of ci/lanes.toml: their types, and the reading of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import markers
from harness.core.names import unknown
from harness.core.registry import Registry, builtin_specs
from harness.core.spec import RegistryError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LANES_TOML = ROOT / "ci" / "lanes.toml"
OWN = "own"
"""The project's own environment, of requirements.lock."""
SCHEDULES = ("pull_request", "merge", "nightly", "weekly")


class LaneError(ValueError):
    """A lane is written wrongly, or names what there is not; the text names the file, the lane and the key."""


@dataclass(frozen=True)
class Lane:
    """One lane. `suites` are those that its tests are registered for; `options` names engines with the options that it runs them with.

    `minutes` is the limit of one job; `cards` is how many cards a job gets, 0 on a CPU.
    """

    name: str
    title: str
    marks: str
    suites: tuple[str, ...]
    environments: tuple[str, ...]
    platform: str
    schedules: tuple[str, ...]
    shards: int
    minutes: int
    card_class: str | None = None
    cards: int = 0
    packages: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def read_lanes(path: Path = LANES_TOML) -> list[Lane]:
    """The lanes in the order of the file. Raises LaneError."""
    content = _content(path)
    lanes = [_lane(f"{path}: lane {number}", table) for number, table in enumerate(content["lane"], start=1)]
    for number, lane in enumerate(lanes):
        if lane.name in [other.name for other in lanes[:number]]:
            raise LaneError(f"{path}: two lanes are called {lane.name!r}; give one another name")
    return lanes


def read_no_lane(path: Path = LANES_TOML) -> tuple[str, ...]:
    """The files that no lane needs, as patterns of fnmatch over their paths below the root. Raises LaneError."""
    patterns = _content(path).get("no_lane", [])
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise LaneError(f"{path}: no_lane = {patterns!r}: write a list of texts")
    return tuple(patterns)


def find_lane(name: str, lanes: list[Lane]) -> Lane:
    """The lane of that name. Raises LaneError that names those there are."""
    found = next((lane for lane in lanes if lane.name == name), None)
    if found is None:
        raise LaneError(unknown("lane", name, [lane.name for lane in lanes]))
    return found


def base_of(environment: str) -> str:
    """What engines.toml calls an environment: `vllm-omni` for `vllm-omni-0.30`, another release of the same; empty for `own`."""
    return "" if environment == OWN else re.sub(r"-[0-9.]+$", "", environment)


def environment_files(root: Path = ROOT) -> list[str]:
    """The environments there are, `own` first."""
    return [OWN, *(path.stem for path in sorted((root / "ci" / "engines").glob("*.txt")))]


def _content(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as wrong:
        raise LaneError(f"{path}: {wrong}") from None
    if set(content) - {"no_lane"} != {"lane"} or not isinstance(content["lane"], list):
        raise LaneError(f"{path}: write no_lane, and then each lane as a table [[lane]], and nothing else")
    return content


def _lane(where: str, table: Mapping[str, Any]) -> Lane:
    keys = {f.name: f for f in fields(Lane)}
    name = table.get("name")
    where = f"{where} ({name})" if isinstance(name, str) else where
    if set(table) - set(keys):
        raise LaneError(f"{where}: {unknown('key', min(set(table) - set(keys)), keys)}")
    missing = sorted(key for key, f in keys.items() if f.default is MISSING and key not in table)
    if missing:
        raise LaneError(f"{where}: write {', '.join(missing)}")
    for key, value in table.items():
        _check_type(where, key, value, keys[key].type)
    lane = Lane(**{key: tuple(value) if isinstance(value, list) else value for key, value in table.items()})
    _check_values(where, lane)
    return lane


def _check_type(where: str, key: str, value: object, annotation: str) -> None:
    if annotation == "int":
        right, said = type(value) is int, "an integer"
    elif annotation.startswith("tuple"):
        right, said = isinstance(value, list) and all(isinstance(v, str) and v for v in value), "a list of texts"
    else:
        right, said = isinstance(value, str) and bool(value.strip()), "a text"
    if not right:
        raise LaneError(f"{where}: {key} = {value!r}: write {said}")


def _check_values(where: str, lane: Lane) -> None:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", lane.name):
        raise LaneError(f"{where}: name = {lane.name!r}: write lower-case words joined by hyphens; CI systems make it an identifier")
    for key, values, known in (
        ("environments", lane.environments, environment_files()),
        ("schedules", lane.schedules, SCHEDULES),
        ("suites", lane.suites, lane.suites),
        ("platform", (lane.platform,), ("cpu", *markers.PLATFORMS)),
    ):
        if not values or len(set(values)) < len(values):
            raise LaneError(f"{where}: {key} = {list(values)!r}: write one or more, each once")
        wrong = next((value for value in values if value not in known), None)
        if wrong is not None:
            raise LaneError(f"{where}: {key}: {unknown(key, wrong, known)}")
    for named in lane.options:
        _check_options(where, named)
    if lane.shards < 1 or lane.minutes < 1:
        raise LaneError(f"{where}: shards = {lane.shards}, minutes = {lane.minutes}: write 1 or more")
    cuda = lane.platform != "cpu"
    if cuda and (lane.card_class not in markers.CARD_CLASSES or lane.cards not in markers.CARD_COUNTS):
        raise LaneError(f"{where}: write card_class of {', '.join(markers.CARD_CLASSES)} and cards of {markers.CARD_COUNTS}")
    if not cuda and (lane.card_class is not None or lane.cards):
        raise LaneError(f"{where}: card_class and cards are for platform = 'cuda'")


def _check_options(where: str, named: str) -> None:
    """LaneError unless it is one engine of engines.toml with options that it has."""
    engine, _, given = named.partition(":")
    try:
        found = Registry(builtin_specs()).select([named])
    except RegistryError as wrong:
        raise LaneError(f"{where}: options: {wrong}") from None
    if not given or [selection.spec.name for selection in found] != [engine]:
        raise LaneError(f"{where}: options = {named!r}: write one engine with its options, such as 'duplex/moshi:sdpa=efficient'")
