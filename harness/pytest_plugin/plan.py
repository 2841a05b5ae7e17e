"""`--plan`: what would run here, what would not and why, how long it takes and how much GPU memory; nothing is run."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from harness.pytest_plugin.routing import refusal
from harness.pytest_plugin.state import CASE, RUN


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    return True if session.config.option.plan else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.option.plan or hasattr(config, "workerinput"):
        return
    items = [i for i in terminalreporter._session.items if CASE in i.stash]
    terminalreporter.section("plan: nothing was run")
    for line in lines(items):
        terminalreporter.write_line(line)
    for label, reason in config.stash[RUN].unavailable.items():
        terminalreporter.write_line(f"{label}: UNAVAILABLE: {reason}")


def lines(items: list[pytest.Item]) -> list[str]:
    """A line an engine, a line for each reason to skip, and the sums."""
    by_case: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_case[item.stash[CASE].id, item.stash[CASE].profile.num_cards].append(item)
    written, total, counted = [], 0.0, set()
    for (case_id, num_cards), own in by_case.items():
        case = own[0].stash[CASE]
        skips = Counter(case.unavailable or refusal(i, case) for i in own)
        runs = skips.pop(None, 0)
        # A module's time is told once, also where some of its tests need more cards than others.
        modules = {(case_id, i.path) for i in own if not (case.unavailable or refusal(i, case))} - counted
        counted |= modules
        seconds = sum(est_time(path, case.profile.name) for _, path in modules)
        total += seconds
        memory = f", {case.profile.gpu_gib:g} GPU GiB" if case.profile.num_cards else ""
        cards = f" on {num_cards} cards" if num_cards > 1 else ""
        written.append(f"{case_id}{cards}: {runs} run, {sum(skips.values())} skip; about {seconds / 60:.1f} min{memory}")
        written += [f"    skip {n}: {reason}" for reason, n in skips.items()]
    return [*written, f"{len(items)} tests, about {total / 60:.1f} min"]


@cache
def est_time(path: Path, profile: str) -> float:
    """Seconds that the module says it takes an engine in this profile, by its register_ci and register_cuda_ci; 0 where it says nothing."""
    total = 0.0
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = getattr(node.value.func, "id", getattr(node.value.func, "attr", ""))
            given = {k.arg: k.value.value for k in node.value.keywords if isinstance(k.value, ast.Constant)}
            covers = {"register_ci": given.get("profile", "cpu"), "register_cuda_ci": "gpu"}.get(name)
            if covers == profile:
                total += float(given.get("est_time", 0))
    return total
