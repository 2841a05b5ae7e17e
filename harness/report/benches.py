"""Records of `assay bench KIND --json`, read and checked: what the pictures of them may rely on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from harness.report.runs import UnreadableRun

SCHEMA = 1
_TEXT, _NUMBER, _MAYBE, _FLAG = "a text", "a finite number", "a finite number or null", "true or false"
_ROWS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "duplex": {"paces": {"engine": _TEXT, "batch": _NUMBER, "median": _NUMBER, "p99": _NUMBER, "budget": _NUMBER, "floor": _MAYBE}},
    "tier": {"hits": {"engine": _TEXT, "host": _FLAG, "load": _NUMBER, "prompts": _NUMBER, "ratio": _NUMBER, "from_host": _MAYBE}},
    "transfer": {
        "rates": {"contestant": _TEXT, "size": _NUMBER, "put_get": _NUMBER, "of_plain": _NUMBER},
        "hidden": {
            "engine": _TEXT,
            "device": _TEXT,
            "size": _NUMBER,
            "fetch": _NUMBER,
            "waited": _NUMBER,
            "share": _NUMBER,
            "compute": _MAYBE,
        },
    },
}
"""By kind: the lists that pictures are made from, and what each of their rows must hold."""
_POSITIVE = ("batch", "size", "put_get", "load")
"""What stands on an axis of powers, or divides."""


def read_benches(paths: Iterable[Path]) -> list[Mapping[str, Any]]:
    """The records of files, and of all `*.json` below folders that say which bench they are, by name. Raises UnreadableRun."""
    found = []
    for path in paths:
        if path.is_dir():
            found += [record for file in sorted(path.rglob("*.json")) if "bench" in (record := _object(file))]
        else:
            found.append(_object(path))
            if "bench" not in found[-1]:
                raise UnreadableRun(f"{path}: it does not say which bench it is; give what assay bench KIND --json FILE wrote")
    return [_checked(record) for record in found]


def _object(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise UnreadableRun(f"{path}: {wrong}; give what assay bench KIND --json FILE wrote") from None
    if not isinstance(record, dict):
        raise UnreadableRun(f"{path}: {type(record).__name__}, not an object; give what assay bench KIND --json FILE wrote")
    return {**record, "file": str(path)}


def _checked(record: dict[str, Any]) -> Mapping[str, Any]:
    file, kind = record["file"], record["bench"]
    if kind not in _ROWS:
        raise UnreadableRun(f"{file}: bench {kind!r}; this Assay reads {', '.join(_ROWS)}")
    if record.get("schema") != SCHEMA:
        raise UnreadableRun(f"{file}: schema {record.get('schema')!r}; this Assay reads {SCHEMA}")
    for name, fields in _ROWS[kind].items():
        rows = record.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UnreadableRun(f"{file}: {name} is no list of objects")
        for number, row in enumerate(rows):
            for field, wanted in fields.items():
                if not _is(row.get(field), wanted) or (field in _POSITIVE and row[field] <= 0):
                    above = " above 0" * (field in _POSITIVE)
                    raise UnreadableRun(f"{file}: {name}[{number}].{field} is {str(row.get(field))[:80]!r}, not {wanted}{above}")
    return {**record, "device": str(record.get("device", ""))}


def _is(value: object, wanted: str) -> bool:
    if wanted in (_TEXT, _FLAG):
        return isinstance(value, str if wanted == _TEXT else bool)
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    return number or (wanted == _MAYBE and value is None)
