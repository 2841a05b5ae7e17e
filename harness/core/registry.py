"""Which engines there are and what each one is, read without importing any of them.

Built-in engines stand in harness/engines.toml. A third party brings an adapter class with a `spec` of the same shape (and `name` in it),
through an entry point in the group `assay.engines` or through `--adapter module:attr`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.core.names import unknown
from harness.core.spec import EngineConfig, EngineSpec, Profile, RegistryError, load_object, parse_spec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENGINES_TOML = Path(__file__).parents[1] / "engines.toml"
ENTRY_POINTS = "assay.engines"


@dataclass(frozen=True)
class Selection:
    """An engine with the options that a run gives it."""

    spec: EngineSpec
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`transfer/reference`, or `transfer/reference:connector=memory` with options: what --engine takes."""
        given = ",".join(f"{k}={v}" for k, v in self.options.items())
        return f"{self.spec.name}:{given}" if given else self.spec.name

    def config(self, profile: Profile, seed: int) -> EngineConfig:
        """The build configuration, defaults filled in."""
        defaults = {name: option.default for name, option in self.spec.options.items()}
        return EngineConfig(profile.name, profile.device, defaults | dict(self.options), seed)


class Registry:
    """The engines that this process knows of."""

    def __init__(self, specs: Iterable[EngineSpec]) -> None:
        self.specs: dict[str, EngineSpec] = {}
        for spec in specs:
            if spec.name in self.specs:
                raise RegistryError(f"engine {spec.name} is described twice; give the second another name")
            self.specs[spec.name] = spec

    def select(self, patterns: Iterable[str]) -> list[Selection]:
        """The engines that `NAME[:option=value,...]` patterns pick, in order, each once; every engine for no pattern."""
        picked: dict[str, Selection] = {}
        for pattern in list(patterns) or ["*"]:
            glob, _, given = pattern.partition(":")
            names = [n for n in self.specs if fnmatchcase(n, glob)]
            if not names:
                raise RegistryError(unknown("engine", glob, self.specs) + _hint(glob))
            for name in names:
                selection = Selection(self.specs[name], _parse_options(self.specs[name], given))
                picked[selection.label] = selection
        return list(picked.values())


def _hint(glob: str) -> str:
    if "," in glob:
        return "; for several engines repeat --engine"
    return "; profiles are chosen by their marks, with -m cpu or -m slow" if "@" in glob else ""


def builtin_specs(path: Path = ENGINES_TOML) -> list[EngineSpec]:
    """The engines of engines.toml."""
    with path.open("rb") as file:
        return [parse_spec(name, table) for name, table in tomllib.load(file).items()]


def entry_point_specs() -> list[EngineSpec]:
    """The engines of installed third parties."""
    return [_entry_point_spec(point) for point in metadata.entry_points(group=ENTRY_POINTS)]


def _entry_point_spec(point: metadata.EntryPoint) -> EngineSpec:
    where = f"entry point {point.name} = {point.value}"
    try:
        adapter = point.load()
    except (ImportError, AttributeError) as missing:
        raise RegistryError(f"{where}: {missing}; repair or uninstall the package that brings it") from missing
    return spec_of(adapter, where)


def adapter_spec(path: str) -> EngineSpec:
    """The engine of `--adapter module:attr`."""
    return spec_of(load_object(path, "--adapter"), f"--adapter {path}")


def spec_of(adapter: Any, where: str) -> EngineSpec:
    """An adapter class's own `spec`."""
    table = getattr(adapter, "spec", None)
    if not isinstance(adapter, type):
        raise RegistryError(f"{where}: {adapter!r} is no class; name the adapter class itself")
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise RegistryError(f"{where}: give the adapter a class attribute spec = {{'name': 'kind/name', 'summary': ..., ...}}")
    for method in ("available", "build"):
        if not callable(getattr(adapter, method, None)):
            raise RegistryError(f"{where}: the adapter has no static method {method}()")
    entry = {k: v for k, v in table.items() if k != "name"} | {"factory": f"{adapter.__module__}:{adapter.__qualname__}"}
    return replace(parse_spec(table["name"], entry), adapter=adapter)


def _parse_options(spec: EngineSpec, given: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for item in filter(None, given.split(",")):
        name, equals, value = item.partition("=")
        if not equals:
            raise RegistryError(f"engine {spec.name}: option {item!r}: write option=value")
        if name not in spec.options:
            raise RegistryError(f"engine {spec.name}: {unknown('option', name, spec.options)}")
        choices = spec.options[name].choices
        if choices and value not in choices:
            raise RegistryError(f"engine {spec.name}, option {name}: {unknown('value', value, choices)}")
        options[name] = value
    return dict(sorted(options.items()))
