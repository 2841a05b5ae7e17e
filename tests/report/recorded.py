"""Report logs made by hand, for what no real run holds: ten thousand results, and records that somebody forged."""

import json
from pathlib import Path

FIELDS = {
    "schema": 2, "claim": "duplex.isolation.recycle", "sentence": "A recycled slot is not heard.", "level": "MUST", "engine": "duplex/toy",
    "version": "1.0", "profile": "cpu", "options": "", "fault": "", "verdict": "PASS", "reason": "", "got": "", "expected": "",
    "figures": "[]", "seed": 1234, "control": "", "machine": "", "replay": "pytest x",
}  # fmt: skip
SESSION = {
    "$report_type": "AssaySession", "schema": 2, "started": "2026-12-01T00:00:00+00:00", "command": "pytest suites", "seed": 1234,
    "commit": "abc", "environment": "", "machine": {"cpu": "a processor", "cores": 2, "packages": {"torch": "2.13.0"}}, "engines": {},
    "claims": {}, "known": [], "unavailable": {}, "proof": None,
}  # fmt: skip


def report(start: float = 1.0, longrepr: str | None = None, **fields: object) -> dict:
    """The report of a test's call; `fields` are properties that differ from FIELDS."""
    told = {**FIELDS, **fields}
    options = f":{told['options']}" if told["options"] else ""
    planted = f"~{told['fault']}" if told["fault"] else ""
    told.setdefault("test", f"suites/test_it.py::{told['claim']}[{told['engine']}{options}@{told['profile']}{planted}]")
    properties = [[name, value] for name, value in told.items()]
    return {
        "$report_type": "TestReport", "nodeid": told["test"], "when": "call", "outcome": "passed", "duration": 0.25, "start": start,
        "longrepr": longrepr, "user_properties": properties,
    }  # fmt: skip


def write(path: Path, reports: list[dict], **session: object) -> Path:
    """A report log with a session line."""
    lines = [*reports, {**SESSION, **session}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
