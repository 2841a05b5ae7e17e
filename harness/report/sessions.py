"""A session's record as the site shows it. A file may hold anything, so each field is asked for its type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.report.runs import RecordedRun, UnreadableRun


class Session:
    """One run's session record. `name` is the run's file; a run that was cut short has no record, and every field is empty."""

    def __init__(self, run: RecordedRun) -> None:
        self._path, self._record = run.path, run.session
        self.name = run.path.name
        self.results = len(run.results)
        self.is_whole = bool(run.session)
        self.started, self.command, self.commit = (self._text(name) for name in ("started", "command", "commit"))
        self.seed, self.environment = self._text("seed"), self._text("environment")
        self.machine = self._table("machine")
        self.engines = {label: self._inside("engines", label) for label in self._table("engines")}
        self.claims = {claim: self._inside("claims", claim) for claim in self._table("claims")}
        self.unavailable = {label: str(reason) for label, reason in self._table("unavailable").items()}
        self.proof = self._table("proof")
        self.known = [entry for entry in self._list("known") if isinstance(entry, Mapping)]

    def _text(self, name: str) -> str:
        value = self._record.get(name)
        return "" if value is None else str(value)

    def _table(self, name: str) -> Mapping[str, Any]:
        value = self._record.get(name) or {}
        if not isinstance(value, Mapping):
            raise UnreadableRun(f"{self._path}: AssaySession: {name} is {type(value).__name__}, not an object")
        return value

    def _inside(self, name: str, key: str) -> Mapping[str, Any]:
        value = self._table(name)[key]
        if not isinstance(value, Mapping):
            raise UnreadableRun(f"{self._path}: AssaySession: {name}.{key} is {type(value).__name__}, not an object")
        return value

    def _list(self, name: str) -> Sequence[Any]:
        value = self._record.get(name) or []
        if not isinstance(value, list):
            raise UnreadableRun(f"{self._path}: AssaySession: {name} is {type(value).__name__}, not a list")
        return value

    @property
    def hardware(self) -> str:
        """The machine in a line: its cards, or its processor, and torch."""
        cards = self.machine.get("cards")
        names = [str(card.get("name")) for card in cards if isinstance(card, Mapping)] if isinstance(cards, list) else []
        shown = f"{len(names)} x {names[0]}" if len(names) > 1 and len(set(names)) == 1 else ", ".join(names)
        packages = self.machine.get("packages")
        torch = f"torch {packages['torch']}" if isinstance(packages, Mapping) and packages.get("torch") else ""
        cores = f"{self.machine['cores']} cores" if self.machine.get("cores") else ""
        processor = ", ".join(filter(None, [str(self.machine.get("cpu") or ""), cores]))
        return "; ".join(filter(None, [shown or processor, torch])) or "not recorded"

    def fingerprint(self) -> list[tuple[str, str]]:
        """The machine, what was asked of it and what that came to: names with dots, and values."""
        told = {name: self._record.get(name) for name in ("machine", "determinism", "doctor", "boots", "seconds")}
        return list(_flat("", told))


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list) and any(isinstance(inner, (Mapping, list)) for inner in value):
        for index, inner in enumerate(value):
            yield from _flat(f"{name}[{index}]", inner)
    elif value not in (None, "", []):
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
