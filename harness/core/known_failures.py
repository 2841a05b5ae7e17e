"""Claims that a released engine is known to break: the entries of ci/known_failures.toml, read and checked without pytest."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.core.names import unknown
from harness.core.verdict import Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXCUSED = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.VACUOUS)
"""Verdicts that an engine may be excused from."""
PASSED = "EXPECTED FAILURE PASSED"
"""The headline of a claim that held although an entry says that it fails."""


class KnownFailureError(ValueError):
    """An entry is written wrongly, or names what there is not; the text names the file or the entry, and the key."""


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

    @property
    def strict(self) -> bool:
        """Whether it fails a run in which the claim holds. An engine that does not repeat itself may do so by luck."""
        return self.verdict is not Verdict.INCONCLUSIVE

    def is_of(self, engine: str, version: str | None) -> bool:
        """Whether it is about that engine (its name, with its options where it has any) at that version."""
        return fnmatchcase(engine, self.engine) and version in self.versions

    def excuses(self, engine: str, version: str | None, claim: str) -> bool:
        """Whether it is about that claim on that engine."""
        return self.claim == claim and self.is_of(engine, version)

    def is_expired(self, today: datetime.date) -> bool:
        """Whether somebody promised to look at it again by now."""
        return self.look_again <= today

    @property
    def overdue(self) -> str:
        """What to say of it once it is expired."""
        return f"known failure to look at again: {self.claim} on {self.engine} ({self.owner}, since {self.look_again})"

    @classmethod
    def parse(cls, where: str, table: Mapping[str, Any]) -> KnownFailure:
        """Raises KnownFailureError that names the entry and the key."""
        names = {f.name for f in fields(cls)}
        if set(table) != names:
            raise KnownFailureError(f"{where}: missing {sorted(names - set(table))}, unknown {sorted(set(table) - names)}")
        for key in ("engine", "claim", "verdict", "evidence", "issue", "owner"):
            if not isinstance(table[key], str) or not table[key].strip():
                raise KnownFailureError(f"{where}: {key} = {table[key]!r}: write a text that is not empty")
        versions = table["versions"]
        if not isinstance(versions, list) or not versions or not all(isinstance(v, str) for v in versions):
            raise KnownFailureError(f'{where}: versions = {versions!r}: write a list of texts, as in ["0.30.0"]')
        if table["verdict"] not in {verdict.value for verdict in EXCUSED}:
            can = ", ".join(verdict.value for verdict in EXCUSED)
            raise KnownFailureError(f"{where}: verdict = {table['verdict']!r}: an engine's known failure is {can}")
        for key in ("opened", "look_again"):
            if type(table[key]) is not datetime.date:  # a time of day is not compared with a day
                raise KnownFailureError(f"{where}: {key} = {table[key]!r}: write a date, as in 2026-12-31 without quotes")
        return cls(**{**table, "versions": tuple(versions), "verdict": Verdict(table["verdict"])})


def load(path: Path) -> list[KnownFailure]:
    """The entries of a file; none where there is no file. Raises KnownFailureError that names the file and the entry."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as wrong:
        raise KnownFailureError(f"{path}: {wrong}") from None
    return parse(text, str(path))


def parse(text: str, where: str) -> list[KnownFailure]:
    """The entries of a file's text, `where` being its name. Raises KnownFailureError that names it and the entry."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise KnownFailureError(f"{where}: {wrong}") from None
    if set(content) - {"failure"}:
        raise KnownFailureError(f"{where}: unknown {sorted(set(content) - {'failure'})}; an entry is a table [[failure]]")
    return [KnownFailure.parse(f"{where}: failure {i + 1}", table) for i, table in enumerate(content.get("failure", []))]


def check_names(entries: Iterable[KnownFailure], engines: Iterable[str], claims: set[str]) -> None:
    """KnownFailureError for an entry of an engine or a claim that there is not: it would excuse nothing, silently.

    `claims` may be empty where none were read; then claims are not looked at.
    """
    names = list(engines)
    for number, entry in enumerate(entries, start=1):
        engine = entry.engine.partition(":")[0]
        if not any(fnmatchcase(name, engine) for name in names):
            raise KnownFailureError(f"known failure {number}: {unknown('engine', engine, names)}")
        if claims and entry.claim not in claims:
            raise KnownFailureError(f"known failure {number}: {unknown('claim', entry.claim, claims)}")
