"""Tables for people: engines, claims, faults, and the verdicts of a run."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.core.claims import Claim
from harness.core.faults import Fault
from harness.core.registry import Registry
from harness.core.spec import EngineSpec, Profile
from harness.core.verdict import Verdict

_STYLES = {"PASS": "green", "FAIL": "bold red", "INCONCLUSIVE": "magenta", "VACUOUS": "magenta", "KNOWN": "yellow", "ERROR": "bold red"}

_OF_FILES = 160
"""Columns of what is printed into a file or another program."""


class _Terminal(Protocol):
    def write_line(self, line: str, **markup: bool) -> None: ...


def table(title: str, *columns: str) -> Table:
    """A table in the style of all of ours."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def print_table(shown: Table) -> None:
    """Print it, as wide as the terminal."""
    # Piped into a file or another program there is no width to keep to.
    console = Console(file=sys.stdout) if sys.stdout.isatty() else Console(file=sys.stdout, width=200)
    console.print(shown)


def engines(registry: Registry) -> list[dict[str, Any]]:
    """The engines as JSON-able rows."""
    return [_engine_row(spec) for spec in registry.specs.values()]


def _engine_row(spec: EngineSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "kind": spec.kind,
        "summary": spec.summary,
        "version": spec.version,
        "tested": list(spec.tested),
        "reference": spec.reference,
        "environment": spec.environment,
        "options": {n: {"default": o.default, "choices": list(o.choices), "help": o.help} for n, o in spec.options.items()},
        "profiles": {name: _available(spec, profile) for name, profile in spec.profiles.items()},
        "capabilities": {
            n: {"support": d.support.value, "reason": d.reason, "since": d.since, "value": d.value} for n, d in spec.capabilities.items()
        },
    }


def _available(spec: EngineSpec, profile: Profile) -> str:
    try:
        return spec.why_unavailable(profile) or "available"
    except Exception as broken:  # noqa: BLE001 - a third party's available() may raise anything; the table is still printed
        return f"available() raised {type(broken).__name__}: {broken}"


def show_engines(registry: Registry, as_json: bool = False) -> None:
    """Print every engine, with what it can do and whether it can run here."""
    rows = engines(registry)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    shown = table("Engines", "engine", "version", "profile", "here", "options")
    lacks = table("\nWhat they do not offer", "engine", "capability", "support", "reason")
    for row in rows:
        options = [f"{n}={'|'.join(o['choices']) or o['default']}" for n, o in row["options"].items()]
        for profile, here in row["profiles"].items():
            shown.add_row(row["name"], row["version"] or "-", profile, Text(here), Text(", ".join(options)))
        for name, declared in row["capabilities"].items():
            if declared["support"] != "full":
                reason = declared["reason"] or f"since {declared['since']}"
                lacks.add_row(row["name"], name, declared["support"], Text(reason))
    print_table(shown)
    if lacks.row_count:
        print_table(lacks)


def show_claims(claims: Iterable[Claim], as_json: bool = False) -> None:
    """Print every claim with its level, sentence, source and test."""
    rows = [{**vars(c), "level": c.level.value, "requires": list(c.requires)} for c in claims]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    shown = table("Claims", "claim", "level", "sentence", "asks for", "source")
    for row in rows:
        shown.add_row(row["id"], row["level"], Text(row["sentence"]), ", ".join(row["requires"]), Text(row["source"]))
    print_table(shown)


def show_faults(faults: Iterable[Fault], as_json: bool = False) -> None:
    """Print every planted fault with the claims that must catch it."""
    rows = [
        {"name": f.name, "role": f.role.value, "sentence": f.sentence, "claims": list(f.claims), "seam": f.seam, "source": f.source}
        for f in faults
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    shown = table("Faults", "fault", "role", "what is wrong", "claims that must fail", "source")
    for row in rows:
        shown.add_row(row["name"], row["role"], Text(row["sentence"]), "\n".join(row["claims"]), Text(row["source"]))
    print_table(shown)


def show_verdicts(counts: Mapping[tuple[str, str], Counter[str]], terminal: _Terminal) -> None:
    """Print a run's verdicts by kind and engine; columns that nobody reached are left out. Where a table is too wide: a line an engine."""
    used = [v.value for v in Verdict if any(c[v.value] for c in counts.values())]
    shown = table("Verdicts", "kind", "engine", *used)
    for (kind, engine), row in sorted(counts.items()):
        shown.add_row(kind, engine, *(Text(str(row[v]) if row[v] else "-", style=_STYLES.get(v, "") if row[v] else "dim") for v in used))
    width = _width(terminal)
    if Console(width=1000).measure(shown).maximum <= width:
        _print(shown, terminal)
        return
    terminal.write_line("Verdicts")
    for (_, engine), row in sorted(counts.items()):
        terminal.write_line(engine)
        told = (Text(f"{row[v]} {v}", style=_STYLES.get(v, "")) for v in used if row[v])
        _print(Padding(Text(", ").join(told), (0, 0, 0, 4)), terminal)


@dataclass(frozen=True)
class Failed:
    """A result that fails the run, and the shortest command that shows it again."""

    engine: str
    verdict: str
    claim: str
    replay: str


def show_failed(failed: Iterable[Failed], terminal: _Terminal) -> None:
    """Print what failed, a line each below its engine. A command that the line has no room for has the next one to itself, uncut."""
    by_engine: dict[str, list[Failed]] = {}
    for each in failed:
        by_engine.setdefault(each.engine, []).append(each)
    for engine, own in sorted(by_engine.items()):
        terminal.write_line(f"{engine}: {len(own)} failed", bold=True)
        for each in sorted(own, key=lambda each: each.claim):
            line = f"  {each.verdict} {each.claim}"
            if len(line) + 2 + len(each.replay) <= _width(terminal):
                terminal.write_line(f"{line}  {each.replay}")
            else:
                terminal.write_line(line)
                terminal.write_line(f"    {each.replay}")


def show_lines(lines: Iterable[str], terminal: _Terminal) -> None:
    """Print lines; on a terminal those that are too long go on below, set in."""
    for line in lines:
        width = _width(terminal)
        parts = wrap(line, width, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False) if len(line) > width else [line]
        for part in parts:
            terminal.write_line(part)


def _width(terminal: _Terminal) -> int:
    """Of a terminal, its own. A file has none to keep to."""
    writer = getattr(terminal, "_tw", None)
    return writer.fullwidth if writer is not None and getattr(terminal, "isatty", False) else _OF_FILES


def _print(shown: RenderableType, terminal: _Terminal) -> None:
    text = io.StringIO()
    colour = getattr(terminal, "hasmarkup", False)
    Console(file=text, width=_width(terminal), force_terminal=colour, no_color=None if colour else True).print(shown)
    for line in text.getvalue().splitlines():
        terminal.write_line(line)
