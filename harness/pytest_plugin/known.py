"""Expected failures: ci/known_failures.toml and capabilities declared NOT_YET."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from harness.core.names import unknown
from harness.core.verdict import Verdict
from harness.pytest_plugin.state import CASE, CLAIM

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_EXCUSED = ("FAIL", "INCONCLUSIVE", "VACUOUS")
"""Verdicts that an engine may be excused from."""


@dataclass(frozen=True)
class KnownFailure:
    """One entry. `versions` lists the engine's versions that it was seen on; dates are ISO; `issue` is a link, or says that none is filed.

    `engine` is a name as --engine takes it: an entry with options holds for a run with just those. It may be a glob, so that
    `duplex/moshi*` holds for that engine with any options.
    """

    engine: str
    versions: tuple[str, ...]
    claim: str
    verdict: Verdict
    evidence: str
    issue: str
    owner: str
    opened: datetime.date
    look_again: datetime.date

    @classmethod
    def parse(cls, where: str, table: Mapping[str, Any]) -> KnownFailure:
        """Raises ValueError that names the entry and the key."""
        names = {f.name for f in fields(cls)}
        if set(table) != names:
            raise ValueError(f"{where}: missing {sorted(names - set(table))}, unknown {sorted(set(table) - names)}")
        for key in ("engine", "claim", "verdict", "evidence", "issue", "owner"):
            if not isinstance(table[key], str) or not table[key].strip():
                raise ValueError(f"{where}: {key} = {table[key]!r}: write a text that is not empty")
        versions = table["versions"]
        if not isinstance(versions, list) or not versions or not all(isinstance(v, str) for v in versions):
            raise ValueError(f'{where}: versions = {versions!r}: write a list of texts, as in ["0.30.0"]')
        if table["verdict"] not in _EXCUSED:
            raise ValueError(f"{where}: verdict = {table['verdict']!r}: an engine's known failure is {', '.join(_EXCUSED)}")
        for key in ("opened", "look_again"):
            if type(table[key]) is not datetime.date:  # a time of day is not compared with a day
                raise ValueError(f"{where}: {key} = {table[key]!r}: write a date, as in 2026-12-31 without quotes")
        return cls(**{**table, "versions": tuple(versions), "verdict": Verdict(table["verdict"])})


@dataclass(frozen=True)
class Expectation:
    """A failure that is expected of an item: with which verdicts, why, and what to change once it passes."""

    verdicts: frozenset[Verdict]
    reason: str
    remedy: str
    strict: bool = True


def load(path: Path) -> list[KnownFailure]:
    """The entries of a file; none where there is no file. Raises ValueError that names the file and the entry."""
    if not path.exists():
        return []
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except tomllib.TOMLDecodeError as wrong:
        raise ValueError(f"{path}: {wrong}") from None
    if set(content) - {"failure"}:
        raise ValueError(f"{path}: unknown {sorted(set(content) - {'failure'})}; an entry is a table [[failure]]")
    return [KnownFailure.parse(f"{path}: failure {i + 1}", table) for i, table in enumerate(content.get("failure", []))]


KNOWN = pytest.StashKey[list[KnownFailure]]()


def known_failures(config: pytest.Config) -> list[KnownFailure]:
    """The run's known failures, read once."""
    if KNOWN not in config.stash:
        try:
            config.stash[KNOWN] = load(config.rootpath / config.getini("assay_known_failures"))
        except ValueError as wrong:
            raise pytest.UsageError(str(wrong)) from None
    return config.stash[KNOWN]


def check_names(entries: list[KnownFailure], engines: Iterable[str], claims: set[str]) -> None:
    """Raise UsageError for an entry of an engine or a claim that there is not: it would excuse nothing, silently."""
    for number, entry in enumerate(entries, start=1):
        engine = entry.engine.partition(":")[0]
        if not any(fnmatchcase(name, engine) for name in engines):
            raise pytest.UsageError(f"known failure {number}: {unknown('engine', engine, engines)}")
        if claims and entry.claim not in claims:
            raise pytest.UsageError(f"known failure {number}: {unknown('claim', entry.claim, claims)}")


def overdue(config: pytest.Config, today: datetime.date) -> list[str]:
    """A line for each entry that somebody promised to look at again by now."""
    entries = [e for e in known_failures(config) if e.look_again <= today]
    return [f"known failure to look at again: {e.claim} on {e.engine} ({e.owner}, since {e.look_again})" for e in entries]


def expectation(item: pytest.Item, not_yet: tuple[str, str] | None) -> Expectation | None:
    """What failure is expected of the item, or None. `not_yet` is a capability declared so, with its reason."""
    selection, claim = item.stash[CASE].selection, item.stash[CLAIM]
    spec = selection.spec
    if not_yet is not None:
        capability, reason = not_yet
        place = "its adapter's spec" if spec.adapter is not None else "harness/engines.toml"
        remedy = f"raise the capability {capability} of {spec.name} in {place} from not_yet"
        return Expectation(frozenset({Verdict.FAIL, Verdict.VACUOUS}), f"{capability} not yet: {reason}", remedy)
    for entry in known_failures(item.config):
        if fnmatchcase(selection.label, entry.engine) and entry.claim == claim.id and spec.version in entry.versions:
            return Expectation(
                frozenset({entry.verdict}),
                f"{entry.issue}: {entry.evidence}",
                f"delete the entry of {claim.id} on {selection.label} {spec.version} from {item.config.getini('assay_known_failures')}",
                # An engine that does not repeat itself may do so by luck.
                strict=entry.verdict is not Verdict.INCONCLUSIVE,
            )
    return None
