"""The session record of a merged run: what holds for all of its shards, and under `shards` the record of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ci.attempts import Attempt, Entry, MergeError, verdict

ALIKE = ("schema", "commit", "seed", "environment")
"""What shards of one run have in common."""
_COMMON = ("machine", "determinism")
_SUMS = ("boots", "seconds")


def check_alike(attempts: Iterable[Attempt]) -> None:
    """Raises MergeError where sessions differ in what one run has in common, or hold a proof, which is whole in one session."""
    with_session = [attempt for attempt in attempts if attempt.session]
    for key in ALIKE:
        found = {str(attempt.session.get(key)): attempt.log for attempt in with_session}
        if len(found) > 1:
            told = ", ".join(f"{value} ({log})" for value, log in sorted(found.items()))
            raise MergeError(f"these are no shards of one run, their {key} differs: {told}; merge each run by itself")
    proof = next((attempt.log for attempt in with_session if attempt.session.get("proof")), None)
    if proof:
        raise MergeError(f"{proof}: a proof (--prove) is scored in one session; leave it out")


def join(attempts: Sequence[Attempt], counted: Sequence[Attempt], tests: Iterable[Sequence[Entry]], command: str) -> dict[str, Any]:
    """The record of the merged run.

    `machine` and `determinism` hold what all counted shards agree on; what differs stands under `shards` alone, which lists every attempt.
    `verdicts` are counted anew from the reports of `tests`.
    """
    sessions = [attempt.session for attempt in counted if attempt.session]
    rows = _verdicts(tests)
    judged = {row["engine"] for row in rows}
    joined: dict[str, Any] = {"$report_type": "AssaySession"}
    joined |= {key: sessions[0].get(key) for key in ALIKE}
    joined |= {"started": min(str(session.get("started")) for session in sessions), "command": command}
    joined |= {key: _common([session.get(key) or {} for session in sessions]) for key in _COMMON}
    joined |= {key: _sums(session.get(key) or {} for session in sessions) for key in _SUMS}
    joined |= {key: _union(session.get(key) or {} for session in sessions) for key in ("doctor", "engines", "claims")}
    joined["known"] = _each_once(session.get("known") or [] for session in sessions)
    unavailable = _union(session.get("unavailable") or {} for session in sessions)
    joined["unavailable"] = {label: reason for label, reason in unavailable.items() if label not in judged}
    joined |= {"verdicts": rows, "proof": None}
    joined["shards"] = [_shard(attempt, attempt in counted) for attempt in attempts]
    return joined


def _shard(attempt: Attempt, counts: bool) -> dict[str, Any]:
    session = {key: value for key, value in attempt.session.items() if key != "$report_type"}
    return {
        "shard": attempt.shard,
        "log": str(attempt.log),
        "counts": counts,
        "flaw": attempt.flaw,
        "exitstatus": attempt.status,
        "tests": len(attempt.tests),
        "session": session,
    }


def _verdicts(tests: Iterable[Sequence[Entry]]) -> list[dict[str, Any]]:
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for reports in tests:
        told = next((p for r in reversed(reports) if "verdict" in (p := dict(r.get("user_properties") or []))), None)
        if told:
            options = f":{told['options']}" if told.get("options") else ""
            engine = f"{told['engine']}{options}@{told['profile']}"
            counts[told["engine"].partition("/")[0], engine][verdict(reports)] += 1
    return [{"kind": kind, "engine": engine, **row} for (kind, engine), row in sorted(counts.items())]


def _common(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in given[0].items() if all(key in other and other[key] == value for other in given)}


def _sums(given: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for values in given:
        total.update(values)
    return {key: round(value, 4) for key, value in total.items()}


def _each_once(given: Iterable[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for entries in given:
        found += [entry for entry in entries if entry not in found]
    return found


def _union(given: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    union: dict[str, Any] = {}
    for values in given:
        union |= {key: value for key, value in values.items() if key not in union}
    return union
