"""Which engines there are and what each one is, read without importing any of them.

Built-in engines stand in harness/engines.toml. A third party brings an adapter class with a `spec` of the same shape (and `name` in it),
through an entry point in the group `assay.engines` or through `--adapter module:attr`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from harness import __version__
from harness.core.capabilities import VOCABULARY, Declared, parse_capabilities
from harness.core.clock import Clock
from harness.core.devices import installed_version, shortage
from harness.core.names import unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENGINES_TOML = Path(__file__).parents[1] / "engines.toml"
ENTRY_POINTS = "assay.engines"


class RegistryError(ValueError):
    """An engine's description, name or option is wrong; the text names the entry and what to write."""


@dataclass(frozen=True)
class Option:
    """One option of an engine. No `choices`: any text."""

    default: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""


@dataclass(frozen=True)
class Profile:
    """At what size and on what hardware an engine runs. `marks` are the engine's own, beside what markers.py derives."""

    name: str
    device: str = "cpu"
    platform: str | None = None
    card_class: str | None = None
    num_cards: int = 0
    gpu_gib: float = 0.0
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineConfig:
    """What `build` is given: the profile's name and device, every option with its value, and the run's seed."""

    profile: str
    device: str
    options: Mapping[str, str]
    seed: int


class Adapter(Protocol):
    """What a factory names. Third-party imports belong inside its functions."""

    @staticmethod
    def available() -> str | None:
        """Why the engine cannot run here, or None. Cheap; imports nothing heavy."""
        ...

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> Any:
        """The engine. Raises `harness.core.verdict.Unavailable` for what only a build can know."""
        ...


@dataclass(frozen=True)
class EngineSpec:
    """One engine as its description says."""

    name: str
    summary: str
    factory: str
    profiles: Mapping[str, Profile]
    capabilities: Mapping[str, Declared]
    options: Mapping[str, Option] = field(default_factory=dict)
    reference: bool = False
    package: str = ""
    tested: tuple[str, ...] = ()
    environment: str = ""
    adapter: Any = None

    @property
    def kind(self) -> str:
        """`duplex`, `transfer`, `tier` or `connector`."""
        return self.name.partition("/")[0]

    @property
    def version(self) -> str | None:
        """The installed version of its package; Assay's own for an engine that ships with it; None where neither is known."""
        if self.package:
            return installed_version(self.package)
        return __version__ if self.adapter is None else None

    def load(self) -> Adapter:
        """The adapter class; imports the adapter's module, not the engine."""
        if self.adapter is not None:
            return self.adapter
        return load_object(self.factory, f"{self.name}: factory")

    def why_unavailable(self, profile: Profile) -> str | None:
        """Why this profile cannot run here (hardware, package, the adapter's own word), or None."""
        lacking = shortage(profile.platform, profile.card_class, profile.num_cards)
        if lacking:
            return lacking
        if self.package and self.version is None:
            hint = f" (make engine NAME={self.environment})" if self.environment else ""
            return f"{self.package} is not installed{hint}"
        why = self.load().available()
        if why is not None and not isinstance(why, str):
            raise TypeError(f"it returned {why!r}; return None where the engine can run, or a text that says why not")
        return why


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


_KEYS = {"factory", "summary", "reference", "package", "tested", "environment", "options", "profiles", "capabilities"}


def parse_spec(name: str, table: Mapping[str, Any]) -> EngineSpec:
    """Read one engine's description; raises RegistryError that names the engine and the key."""
    kind = name.partition("/")[0]
    if not isinstance(table, Mapping):
        raise RegistryError(f"engine {name!r}: write a table of {sorted(_KEYS)}")
    if kind not in VOCABULARY or not name.partition("/")[2]:
        raise RegistryError(f"engine {name!r}: name it kind/name, with a kind of {', '.join(VOCABULARY)}")
    if set(table) - _KEYS:
        raise RegistryError(f"{name}: {unknown('key', min(set(table) - _KEYS), _KEYS)}")
    if not table.get("factory") or not table.get("profiles"):
        raise RegistryError(f"{name}: factory and at least one profile are needed")
    _check_types(EngineSpec, name, table)
    try:
        capabilities = parse_capabilities(name, kind, table.get("capabilities", {}))
    except ValueError as wrong:
        raise RegistryError(str(wrong)) from None
    profiles = {p: _parse(Profile, f"{name}: profiles.{p}", v, name=p) for p, v in table["profiles"].items()}
    for p, profile in profiles.items():
        if profile.platform is None and profile.device != "cpu":
            raise RegistryError(f"{name}: profiles.{p}: device = {profile.device!r} needs a platform, such as platform = 'cuda'")
    options = {o: _parse(Option, f"{name}: options.{o}", v) for o, v in table.get("options", {}).items()}
    for o, option in options.items():
        if option.choices and option.default not in option.choices:
            raise RegistryError(f"{name}: options.{o}: {unknown('default', option.default, option.choices)}")
    return EngineSpec(
        name=name,
        summary=table.get("summary", ""),
        factory=table["factory"],
        profiles=profiles,
        capabilities=capabilities,
        options=options,
        reference=table.get("reference", False),
        package=table.get("package", ""),
        tested=tuple(table.get("tested", ())),
        environment=table.get("environment", ""),
    )


def load_object(path: str, what: str) -> Any:
    """The object at `module:attr`; raises RegistryError that says which half is wrong."""
    module_name, colon, attribute = path.partition(":")
    if not colon or not attribute or not module_name or module_name.startswith("."):
        raise RegistryError(f"{what} {path!r}: write module:attr")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as broken:  # an adapter's module is somebody else's code, and may be broken in any way
        told = broken if isinstance(broken, ImportError) else f"{type(broken).__name__}: {broken}"
        raise RegistryError(f"{what} {path!r}: cannot import {module_name}: {told}") from broken
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise RegistryError(f"{what} {path!r}: {unknown('attribute', part, (n for n in vars(found) if not n.startswith('_')))}")
        found = getattr(found, part)
    return found


def _parse(cls: type, where: str, table: Mapping[str, Any], **given: str) -> Any:
    if not isinstance(table, Mapping):
        raise RegistryError(f"{where}: write a table, not {table!r}")
    keys = set(cls.__dataclass_fields__) - set(given)
    if set(table) - keys:
        raise RegistryError(f"{where}: {unknown('key', min(set(table) - keys), keys)}")
    _check_types(cls, where, table)
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}, **given)


_SHAPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a text"),
    "str | None": (str, "a text"),
    "bool": (bool, "true or false"),
    "int": (int, "an integer"),
    "float": ((int, float), "a number"),
    "tuple[str, ...]": ((list, tuple), "a list of texts"),
}
"""The annotation of a field to what its value is in a description, and how to say so. Anything else is a table."""


def _check_types(cls: type, where: str, table: Mapping[str, Any]) -> None:
    for key, value in table.items():
        shape, said = _SHAPES.get(cls.__dataclass_fields__[key].type, (Mapping, "a table"))
        texts = all(isinstance(v, str) for v in value) if isinstance(value, (list, tuple)) else True
        if not isinstance(value, shape) or not texts:
            raise RegistryError(f"{where}: {key} = {value!r}; write {said}")


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
