"""The constants of the suites' workloads: named, with defaults, and overridable as `--set kind.name=value`.

A kind keeps them in one frozen dataclass, `harness.<kind>.workload:Workload`; the type of a default says how a value is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from harness.core.faults import KINDS
from harness.core.names import unknown


def workloads(settings: Iterable[str]) -> dict[str, Any]:
    """Kind to its workload with `kind.name=value` settings applied. Raises ValueError that names the nearest constant."""
    loads = {kind: importlib.import_module(f"harness.{kind}.workload").Workload() for kind in KINDS}
    changes: dict[str, dict[str, Any]] = {kind: {} for kind in loads}
    for setting in settings:
        path, equals, value = setting.partition("=")
        kind, _, name = path.partition(".")
        if not equals or not name:
            raise ValueError(f"--set {setting!r}: write kind.name=value")
        if kind not in loads:
            raise ValueError(f"--set {setting!r}: {unknown('kind', kind, loads)}")
        changes[kind][name] = _read(loads[kind], name, value, setting)
    # All at once, so that the order of the settings does not matter to constants that must fit each other.
    return {kind: _replaced(kind, load, changes[kind]) for kind, load in loads.items()}


def _read(load: Any, name: str, value: str, setting: str) -> Any:
    known = {f.name for f in fields(load)}
    if name not in known:
        raise ValueError(f"--set {setting!r}: {unknown('constant', name, known)}")
    kind_of_value = type(getattr(load, name))
    try:
        return kind_of_value(value)
    except ValueError:
        raise ValueError(f"--set {setting!r}: {value!r} is no {kind_of_value.__name__}") from None


def _replaced(kind: str, load: Any, changes: dict[str, Any]) -> Any:
    try:
        return replace(load, **changes)
    except ValueError as wrong:
        given = " ".join(f"--set {kind}.{name}={value}" for name, value in changes.items())
        raise ValueError(f"{given}: {wrong}") from None
