"""Which fixtures a test gets, itself or through others: the closure that pytest works out, from syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ci.sources import Problems, Source, Sources

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Fixture:
    """One fixture and the names that it asks for."""

    name: str
    asks: tuple[str, ...]
    where: str
    autouse: bool = False


Scope = Mapping[str, list[Fixture]]
"""Name to the fixtures of that name, the nearest last: a fixture that asks for its own name gets the one before."""


def plugin_scope(sources: Sources, elsewhere: Path, problems: Problems) -> dict[str, list[Fixture]]:
    """The fixtures of conftest.py and of every plugin that it names, and these name: in the tree, or else in the checkout `elsewhere`.

    What lies in neither, such as pytest's own `pytester`, has no fixture that hands out an engine.
    """
    scope: dict[str, list[Fixture]] = {}
    files, seen = [sources.root / "conftest.py"], set()
    while files:
        file = files.pop(0)
        if file in seen:
            continue
        seen.add(file)
        with problems.kept():
            source = sources.read(file)
            for name in _plugins(source):
                found = next((path for root in (sources.root, elsewhere) for path in module_files(root, name)), None)
                files += [found] if found else []
            for fixture in fixtures_of(source, source.tree.body):
                earlier = scope.setdefault(fixture.name, [])
                if earlier:
                    problems.add(f"{fixture.where}: fixture {fixture.name} is defined at {earlier[0].where} too; give one another name")
                earlier.append(fixture)
    return scope


def module_files(root: Path, name: str) -> Iterator[Path]:
    """The file of a module below the root, if there is one."""
    path = root.joinpath(*name.split("."))
    yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def _plugins(source: Source) -> list[str]:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytest_plugins" for t in node.targets):
            given = source.literal(node.value, "pytest_plugins")
            return [given] if isinstance(given, str) else list(given)
    return []


def fixtures_of(source: Source, body: Iterable[ast.stmt], *, method: bool = False) -> list[Fixture]:
    """The fixtures that a module or a class defines. Raises SourceError for one with `params`: its tests would have no name without it."""
    found = []
    for function in body:
        if not isinstance(function, FUNCTION):
            continue
        for decorator in function.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            if source.dotted(call.func if call else decorator) == "pytest.fixture":
                given = source.keywords(call, ("name", "autouse", "scope"), form="pytest.fixture(name=, autouse=, scope=)") if call else {}
                asks = asked(function, method=method)
                found.append(Fixture(given.get("name", function.name), asks, source.where(function), bool(given.get("autouse"))))
    return found


def asked(function: Function, *, method: bool = False) -> tuple[str, ...]:
    """The fixtures that a function's parameters name: those without a default, and not `self`."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    needed = positional[: len(positional) - len(given.defaults)]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    needed = needed[1:] if method and not static else needed
    return tuple(arg.arg for arg in needed) + tuple(
        arg.arg for arg, own in zip(given.kwonlyargs, given.kw_defaults, strict=True) if own is None
    )


def closure(names: Iterable[str], scope: Scope) -> frozenset[str]:
    """The names, and all that the fixtures behind them ask for; fixtures that are used by every test among them."""
    reached: set[str] = set()
    open_ = [(name, -1) for name in (*names, *(f.name for own in scope.values() for f in own[-1:] if f.autouse))]
    seen = set(open_)
    while open_:
        name, level = open_.pop()
        reached.add(name)
        own = scope.get(name, [])
        if len(own) < -level:
            continue
        asks = [(ask, level - 1 if ask == name else -1) for ask in own[level].asks]
        open_ += [ask for ask in asks if ask not in seen]
        seen.update(asks)
    return frozenset(reached)


def extended(scope: Scope, fixtures: Iterable[Fixture]) -> dict[str, list[Fixture]]:
    """The scope of a file or a class inside another: its own fixtures come before those of the same name."""
    inner = {name: list(own) for name, own in scope.items()}
    for fixture in fixtures:
        inner.setdefault(fixture.name, []).append(fixture)
    return inner
