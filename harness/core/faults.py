"""Planted faults: a switchable wrong behaviour of a reference engine, and the claims that must catch it.

A fault replaces one production seam, a function or method of the reference engine, by a function that is given the original first.
It is switched on from outside and leaves nothing behind. A *wrong input* is a fault without a public source: one wrong answer, made
for one claim that no catalogued fault covers. A *null* fault changes nothing and must be caught by nobody; a *canary* must fail every
claim that it names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any

from harness.core.names import unknown

KINDS = ("duplex", "transfer", "tier")
"""Kinds that have a reference engine; `harness.<kind>.faults` and `harness.<kind>.wrong_inputs` hold their faults."""


class Role(str, Enum):
    """What a planted fault is for."""

    FAULT = "fault"
    WRONG_INPUT = "wrong input"
    NULL = "null"
    CANARY = "canary"


@dataclass(frozen=True)
class Fault:
    """One planted fault. `seam` is `module:Class.method` or `module:function`; `claims` are the ids that must fail under it.

    `raises` names the exceptions that are its misbehaviour. Any other that comes out of the replacement itself is a mistake in the fault:
    it must not pass for a catch. `engine` is a glob: the reference engines that hold the seam, where a kind has several.
    """

    name: str
    seam: str
    claims: tuple[str, ...]
    replacement: Callable[..., Any]
    role: Role = Role.FAULT
    source: str = ""
    raises: tuple[type[Exception], ...] = ()
    engine: str = "*"

    @property
    def kind(self) -> str:
        """The kind whose reference engine is broken."""
        return self.name.partition("/")[0]

    def is_for(self, engine: str, claim: str) -> bool:
        """Whether the claim is judged under this fault on that engine: one that it names; under a null fault each claim of its kind."""
        named = claim in self.claims or (not self.claims and self.kind == claim.partition(".")[0])
        return named and fnmatchcase(engine, self.engine)

    @property
    def sentence(self) -> str:
        """What is wrong, in a line."""
        return (self.replacement.__doc__ or "").strip().splitlines()[0]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The seam is broken inside the block."""
        owner, attribute = _resolve(self.seam)
        raw = vars(owner)[attribute]
        setattr(owner, attribute, _rewrap(raw, self._called))
        _PLANTED.append(self.name)
        try:
            yield
        finally:
            _PLANTED.remove(self.name)
            setattr(owner, attribute, raw)

    def _called(self, raw: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return self.replacement(raw, *args, **kwargs)
        except Exception as error:
            trace, code = error.__traceback__, self.replacement.__code__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            own = trace is not None and trace.tb_frame.f_code in (code, Fault._called.__code__)
            if own and not isinstance(error, self.raises):
                MISTAKES.append(f"{self.name}: the fault itself raised {type(error).__name__}: {error}")
            raise


MISTAKES: list[str] = []
"""What went wrong inside planted faults, in this process, since somebody last cleared it: an engine may swallow an exception."""

_REGISTERED: dict[str, Fault] = {}
_PLANTED: list[str] = []


def planted() -> tuple[str, ...]:
    """The names of what is planted in this process now, for an engine that has processes of its own."""
    return tuple(_PLANTED)


def fault(
    name: str,
    *,
    seam: str,
    claims: Sequence[str] = (),
    source: str = "",
    role: Role = Role.FAULT,
    raises: Sequence[type[Exception]] = (),
    engine: str = "*",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the replacement of `seam`; its docstring says what is wrong.

    `raises`: exceptions that the function raises on purpose. `engine`: the reference engines to plant it in.
    """

    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        if name in _REGISTERED and _REGISTERED[name].replacement.__code__ != replacement.__code__:
            raise ValueError(f"fault {name} is planted twice; give one another name")
        if not (replacement.__doc__ or "").strip():
            raise ValueError(f"fault {name} needs a docstring that says what is wrong")
        if bool(claims) == (role is Role.NULL):
            raise ValueError(f"fault {name}: a null fault names no claim, every other names at least one")
        _REGISTERED[name] = Fault(name, seam, tuple(claims), replacement, role, source, tuple(raises), engine)
        return replacement

    return register


def all_faults() -> list[Fault]:
    """Every planted fault, catalogued faults first, in the order they are written in."""
    for kind in KINDS:
        importlib.import_module(f"harness.{kind}.faults")
        importlib.import_module(f"harness.{kind}.wrong_inputs")
    order = list(Role)
    return sorted(_REGISTERED.values(), key=lambda f: order.index(f.role))


def find_faults(glob: str) -> list[Fault]:
    """The faults whose names match, null faults and canaries always among them. Raises ValueError if no other matches."""
    everything = all_faults()
    named = [f for f in everything if fnmatchcase(f.name, glob)]
    if not named:
        raise ValueError(unknown("fault", glob, (f.name for f in everything)))
    return [f for f in everything if f in named or f.role in (Role.NULL, Role.CANARY)]


def find_fault(name: str) -> Fault:
    """The one fault of this name. Raises ValueError that names the nearest."""
    by_name = {f.name: f for f in all_faults()}
    if name not in by_name:
        raise ValueError(unknown("fault", name, by_name))
    return by_name[name]


def _resolve(seam: str) -> tuple[Any, str]:
    module, _, path = seam.partition(":")
    *parents, attribute = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for parent in parents:
            owner = getattr(owner, parent)
    except (ImportError, AttributeError) as missing:
        raise AttributeError(f"seam {seam}: {missing}") from missing
    if attribute not in vars(owner):
        raise AttributeError(f"seam {seam}: {attribute} is not defined there; a fault patches the place of definition")
    return owner, attribute


def _rewrap(raw: Any, replacement: Callable[..., Any]) -> Any:
    """The replacement in the wrapping (static method, class method, property) of what it replaces."""
    for wrapper in (staticmethod, classmethod):
        if isinstance(raw, wrapper):
            return wrapper(_rewrap(raw.__func__, replacement))
    if isinstance(raw, property):
        return property(_rewrap(raw.fget, replacement), raw.fset, raw.fdel)

    @wraps(raw)
    def broken(*args: Any, **kwargs: Any) -> Any:
        return replacement(raw, *args, **kwargs)

    return broken
