"""The failure text: ten lines or fewer, the last of them a command that fails the same way."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.core.claims import Claim
from harness.core.judge import Judge
from harness.core.verdict import Finding
from harness.pytest_plugin import machine
from harness.pytest_plugin.options import DEFAULT_SEED
from harness.pytest_plugin.state import CASE, CLAIM, REPLAY, RUN, Case, Run

_WIDTH = 240


def replay(item: pytest.Item) -> str:
    """The command that runs this one test as it was run, from the root of the checkout."""
    run = item.config.stash[RUN]
    case = item.stash[CASE]
    words = ["pytest", item.nodeid, "--seed", str(run.seed)]
    if case.fault:
        words += ["--fault", case.fault.name]
    adapter = run.adapters.get(case.selection.spec.name)
    if adapter:
        words += ["--adapter", adapter]
    line = command([*words, *run.replay_options, *item.stash.get(REPLAY, [])])
    path = _path_of(adapter, item.config.rootpath) if adapter else None
    return f"PYTHONPATH={shlex.quote(path)} {line}" if path else line


def shortest(replay: str, seed: int) -> str:
    """The replay without what it says for certainty's sake: the seed that a run has anyhow."""
    return replay.replace(f" --seed {seed}", "", 1) if seed == DEFAULT_SEED else replay


def _path_of(adapter: str, root: Path) -> str | None:
    """The entry of PYTHONPATH that an adapter's module was found through; the root of the checkout is on the path anyhow."""
    found = getattr(sys.modules.get(adapter.partition(":")[0]), "__file__", None)
    entries = [Path(e) for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e]
    return next((str(e) for e in entries if found and e.resolve() != root and Path(found).is_relative_to(e)), None)


def command(words: Iterable[str]) -> str:
    """Words as a shell line; double quotes where quotes are needed and possible, since test names hold brackets."""
    return " ".join(f'"{w}"' if shlex.quote(w) != w and not set(w) & set('"$`\\!') else shlex.quote(w) for w in words)


def failure(item: pytest.Item, finding: Finding, judge: Judge | None) -> str:
    """The text of a finding."""
    told = machine.quoted(item, finding)
    return render(item.stash[CASE], item.stash[CLAIM], item.config.stash[RUN], finding, judge, replay(item), told)


def render(case: Case, claim: Claim, run: Run, finding: Finding, judge: Judge | None, command: str, told: str = "") -> str:
    """Headline, claim, got, expected, extent, stimulus, control, machine (`told`), replay; empty ones are left out."""
    planted = f"  fault {case.fault.name}" if case.fault else ""
    stimulus = f"seed {run.seed}" + (f"; {judge.stimulus}" if judge and judge.stimulus else "")
    rows = [
        ("claim", claim.sentence),
        ("got", finding.got),
        ("expected", finding.expected),
        ("extent", finding.extent),
        ("stimulus", stimulus),
        ("control", judge.control if judge else ""),
        ("machine", told),
        ("replay", command),
    ]
    lines = [f"{finding.headline}  {case.label}  {claim.id}{planted}"]
    return "\n".join(lines + [f"{name:<9} {one_line(text, name)}" for name, text in rows if text])


def one_line(text: str, name: str = "") -> str:
    """On one line, and no longer than a reader follows; a command is never cut."""
    if name == "replay":
        return text
    flat = " ".join(text.split())
    return flat if len(flat) <= _WIDTH else f"{flat[:_WIDTH]}..."
