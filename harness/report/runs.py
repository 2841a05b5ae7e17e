"""A recorded run as its report log tells it. Whoever reads one reads it here: the report, merging, least counts, known failures.

A report log is JSON lines. Each test has a report for each of its phases; the last one that holds a `verdict` decides. The line
`AssaySession` says what the whole run depended on. `harness/pytest_plugin/record.py` writes both and names the fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from harness.core.registry import builtin_specs
from harness.core.verdict import Verdict

SCHEMAS = (1, 2)
"""Versions of the record that this reader knows."""

_TEXTS = ("claim", "sentence", "level", "engine", "version", "profile", "options", "fault")
_TEXTS += ("reason", "got", "expected", "control", "machine", "replay")


class UnreadableRun(ValueError):
    """A file that is no recorded run, or not one that this version reads; the text names the file, the line, and what to do."""


@dataclass(frozen=True)
class Series:
    """Values against something, as `harness.core.judge.Series` is recorded. y None: it is no number."""

    x: str
    y: str
    points: tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class Figure:
    """A number that a test measured. `bound` is the limit that it is held to, or None; `series` (schema 2) is what it sums up."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    series: Series | None = None


@dataclass(frozen=True)
class Result:
    """What a run says of one test on one engine; the fields are those of the record, `seconds` those of the test's phases together."""

    test: str
    claim: str
    sentence: str
    level: str
    engine: str
    version: str
    profile: str
    options: str
    fault: str
    verdict: Verdict
    reason: str
    got: str
    expected: str
    control: str
    machine: str
    replay: str
    seed: int
    figures: tuple[Figure, ...] = ()
    seconds: float = 0.0
    start: float = 0.0
    """When its first phase began, in seconds since the epoch."""
    text: str = ""
    """What a person read at the terminal: the failure, whole; empty for a result that is none."""
    environment: str = ""
    """That of ci/engines which the run was made in (schema 2); empty for any other, and where the record does not say."""

    @property
    def kind(self) -> str:
        """`duplex`, `transfer`, `tier` or `connector`."""
        return self.engine.partition("/")[0]

    @property
    def label(self) -> str:
        """The engine as it was asked for, with its profile: `transfer/reference:connector=shm@cpu`."""
        options = f":{self.options}" if self.options else ""
        return f"{self.engine}{options}@{self.profile}"

    @property
    def column(self) -> str:
        """The engine as it stands beside others: with an environment that is not the one that engines.toml names, which is another release.

        `transfer/vllm-omni@cpu in vllm-omni-0.30`, beside that of vllm-omni. A later version in the same environment is the same column.
        """
        usual = self.environment in ("", _environments().get(self.engine))
        return self.label if usual else f"{self.label} in {self.environment}"

    @property
    def group(self) -> str:
        """The claim's group: `duplex.isolation` of `duplex.isolation.recycle`."""
        return self.claim.rpartition(".")[0]


@dataclass(frozen=True)
class RecordedRun:
    """One report log. `session` is its AssaySession line as written, empty where the run was ended before it could write one."""

    path: Path
    session: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Result, ...] = ()


@cache
def _environments() -> Mapping[str, str]:
    """Engine to the environment that engines.toml names for it."""
    return {spec.name: spec.environment for spec in builtin_specs()}


def read_runs(paths: Iterable[Path]) -> list[RecordedRun]:
    """The runs of files and of all `*.jsonl` below folders, sorted by name. Raises UnreadableRun."""
    files = [file for path in paths for file in (sorted(path.rglob("*.jsonl")) if path.is_dir() else [path])]
    return [read_run(file) for file in files]


def read_run(path: Path) -> RecordedRun:
    """One report log. Raises UnreadableRun that names the file and the line."""
    session: Mapping[str, Any] = {}
    last: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    seconds: dict[str, float] = {}
    starts: dict[str, float] = {}
    for where, entry in read_entries(path):
        kind = entry.get("$report_type")
        if kind == "AssaySession":
            _check_schema(where, entry.get("schema"))
            session = entry
        elif kind == "TestReport":
            properties = _properties(where, entry)
            nodeid = str(entry.get("nodeid", ""))
            seconds[nodeid] = seconds.get(nodeid, 0.0) + _number(where, entry, "duration")
            starts.setdefault(nodeid, _number(where, entry, "start"))
            if "verdict" in properties:
                last[nodeid] = properties, entry
    judged = [_result(path, *reported, seconds[nodeid], starts[nodeid]) for nodeid, reported in last.items()]
    environment = str(session.get("environment") or "")
    results = tuple(replace(result, environment=environment) for result in judged)
    return RecordedRun(path, session, results)


def read_entries(path: Path, *, cut_off: bool = False) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each line of a report log, with its place `FILE:NUMBER`. `cut_off`: leave out a last line that its writer did not finish.

    Raises UnreadableRun that names the file and the line.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as wrong:
        raise UnreadableRun(f"{path}: {wrong}; give what pytest --report-log=FILE wrote") from None
    whole, rest = lines[:-1], lines[-1]
    if rest and not cut_off:
        whole.append(rest)
    for number, line in enumerate(whole, start=1):
        yield f"{path}:{number}", _entry(f"{path}:{number}", line)


def _entry(where: str, line: bytes) -> Mapping[str, Any]:
    try:
        entry = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UnreadableRun(f"{where}: no JSON; the file was cut off, or is no report log of pytest's") from None
    if not isinstance(entry, dict):
        raise UnreadableRun(f"{where}: {type(entry).__name__}, not an object; give what pytest --report-log=FILE wrote")
    return entry


def _properties(where: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    given = entry.get("user_properties") or []
    if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in given):
        raise UnreadableRun(f"{where}: user_properties is no list of names and values")
    properties = dict(given)
    if "verdict" in properties:
        _check_schema(where, properties.get("schema"))
    return properties


def _number(where: str, entry: Mapping[str, Any], name: str) -> float:
    value = entry.get(name) or 0.0
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UnreadableRun(f"{where}: {name} is {value!r}, no number of seconds")
    return float(value)


def _check_schema(where: str, schema: object) -> None:
    if schema not in SCHEMAS:
        later = isinstance(schema, int) and schema > max(SCHEMAS)
        hint = "a later Assay wrote it: read it with that one" if later else f"this Assay reads {', '.join(map(str, SCHEMAS))}"
        raise UnreadableRun(f"{where}: schema {schema!r}; {hint}")


def _result(path: Path, properties: Mapping[str, Any], entry: Mapping[str, Any], seconds: float, start: float) -> Result:
    test = str(properties.get("test", entry.get("nodeid", "")))
    try:
        figures = tuple(map(_figure, json.loads(properties.get("figures", "[]"))))
        verdict, seed = Verdict(properties["verdict"]), int(properties.get("seed", 0))
    except (ValueError, TypeError, KeyError, AttributeError) as wrong:
        raise UnreadableRun(f"{path}: {test}: {wrong}") from None
    texts = {name: str(properties.get(name) or "") for name in _TEXTS} | {"test": test}
    told = entry.get("longrepr") if verdict.fails_the_run or verdict is Verdict.KNOWN else None
    text = told if isinstance(told, str) else ""
    return Result(**texts, verdict=verdict, seed=seed, figures=figures, seconds=seconds, start=start, text=text)


def _figure(recorded: Mapping[str, Any]) -> Figure:
    """Raises TypeError or ValueError for what is no figure."""
    bound, series = recorded.get("bound"), recorded.get("series")
    kept = None
    if series is not None:
        points = tuple((float(x), None if y is None else float(y)) for x, y in series["points"])
        kept = Series(str(series["x"]), str(series["y"]), points)
    number = None if bound is None else float(bound)
    return Figure(str(recorded["name"]), float(recorded["value"]), str(recorded["unit"]), number, kept)
