"""Report logs for the tests of ci: real ones, of ci/results, with results changed."""

import json
from collections.abc import Callable
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "ci" / "results"
Change = Callable[[dict], dict | None]
"""A result's properties to new ones, or to None where the result is to go."""


def changed(source: str, to: Path, change: Change = dict, session: Change = dict) -> Path:
    """A copy of a recorded run, each result as `change` has it, and its session as `session` has it."""
    lines = []
    for line in (RESULTS / source).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        properties = dict(entry.get("user_properties") or [])
        if entry["$report_type"] == "AssaySession":
            entry = session(entry)
        elif "verdict" in properties:
            new = change(properties)
            entry = entry | {"user_properties": list(new.items())} if new is not None else None
        lines += [json.dumps(entry)] if entry is not None else []
    to.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return to


def where(claim: str, **fields: object) -> Change:
    """Change these fields of one claim's result."""
    return lambda properties: properties | fields if properties["claim"] == claim else properties
