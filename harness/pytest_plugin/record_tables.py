"""What stands once in a session's record instead of with each of its results: claims, engines, known failures, the environment."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.core.capabilities import Declared, Support
from harness.core.claims import Claim, ClaimError, read_claims
from harness.pytest_plugin.known import known_failures
from harness.pytest_plugin.state import RUN

_BUILT = re.compile(r"(?P<name>.+)-[0-9a-f]{12}")
"""The folder that ci/engine_env.py makes of an engine environment, below .engines."""


def claims(config: pytest.Config, ids: set[str]) -> dict[str, dict[str, Any]]:
    """Claim id to level, source, requires and where (`file:line`, from the root of the checkout), of the claims given."""
    return {claim.id: _claim(config, claim) for claim in _made(config) if claim.id in ids}


def _made(config: pytest.Config) -> list[Claim]:
    # From the syntax trees: under xdist this process has collected nothing.
    paths = [config.rootpath / path for path in config.getini("testpaths")]
    try:
        return read_claims(path for path in paths if path.exists())
    except (ClaimError, SyntaxError):
        return []


def _claim(config: pytest.Config, claim: Claim) -> dict[str, Any]:
    file, _, line = claim.where.rpartition(":")
    where = f"{Path(file).relative_to(config.rootpath).as_posix()}:{line}"
    return {"level": claim.level.value, "source": claim.source, "requires": list(claim.requires), "where": where}


def engines(config: pytest.Config, judged: set[str]) -> dict[str, dict[str, Any]]:
    """Engine, as it was asked for, to version and kind; of those whose names are in `judged` also environment and capabilities."""
    told: dict[str, dict[str, Any]] = {}
    for selection in config.stash[RUN].selections:
        spec = selection.spec
        told[selection.label] = {"version": spec.version, "kind": spec.kind}
        if spec.name in judged:
            told[selection.label]["environment"] = spec.environment
            told[selection.label]["capabilities"] = {name: capability(d) for name, d in spec.capabilities.items()}
    return told


def capability(declared: Declared) -> dict[str, Any]:
    """As engines.toml has it: support and, where they are given, reason, since and value. A plain `full` is `{}`."""
    given = {"reason": declared.reason, "since": declared.since, "value": declared.value}
    support = {} if declared.support is Support.FULL else {"support": declared.support.value}
    return support | {name: value for name, value in given.items() if value not in ("", None)}


def known_used(config: pytest.Config, results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries of ci/known_failures.toml that are about a result of this run, whether it failed or passed."""
    seen = {(_label(r), r["version"], r["claim"]) for r in results if not r["fault"]}
    used = [entry for entry in known_failures(config) if any(entry.excuses(*one) for one in seen)]
    return [{name: _plain(value) for name, value in asdict(entry).items()} for entry in used]


def _label(result: Mapping[str, Any]) -> str:
    return f"{result['engine']}:{result['options']}" if result["options"] else result["engine"]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return str(value)


def environment(config: pytest.Config) -> str:
    """The engine environment that the run's Python is of, as ci/engines names it; empty for any other."""
    prefix = Path(sys.prefix)
    built = _BUILT.fullmatch(prefix.name)
    return built["name"] if built and prefix.parent == config.rootpath / ".engines" else ""
