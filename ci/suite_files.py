"""A file of the suites as its syntax tree tells it: its tests with their claims, marks and fixtures, and how long it takes."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import markers
from ci.closures import FUNCTION, Function, Scope, asked, closure, extended, fixtures_of
from ci.sources import Problems, Source, SourceError
from harness.core.claims import Claim, claim_of
from harness.core.names import unknown

_REGISTERS = {"markers.register_ci": ("est_time", "suite", "profile"), "markers.register_cuda_ci": ("est_time", "suite")}
_DECORATORS = ("harness.core.claims.claim", "harness.core.capabilities.requires", "staticmethod")
_PLAIN_MARKS = ("usefixtures", "filterwarnings", "timeout")
"""Marks of pytest and of pytest-timeout that change neither what a test is judged on nor where."""
_REFUSED_MARKS = {
    "parametrize": "a claim is no parametrization of another: write a test with a claim of its own, or a loop inside the test",
    **dict.fromkeys(("skip", "skipif", "xfail"), "ask for a capability with @requires, or add to ci/known_failures.toml"),
}


@dataclass(frozen=True)
class Register:
    """What `register_ci` says: the seconds that the module takes an engine in one profile, and the suite that it belongs to."""

    seconds: float
    suite: str
    where: str


@dataclass(frozen=True)
class Test:
    """One test function. `name` is its node id without parameters; `marks` are its own, its class's and its module's, the nearest first."""

    name: str
    where: str
    claim: Claim
    kind: str
    marks: tuple[str, ...]
    fixtures: frozenset[str]


@dataclass
class SuiteFile:
    """One file. `registers` is by profile."""

    name: str
    registers: dict[str, Register] = field(default_factory=dict)
    tests: list[Test] = field(default_factory=list)


def read_suite_file(source: Source, scope: Scope, problems: Problems) -> SuiteFile:
    """The file; `scope` is what fixtures there are without its own. Whatever is wrong in it is kept in `problems`."""
    file = SuiteFile(source.name)
    _check_names(source, problems)
    _read_registers(source, file, problems)
    module_marks: list[_Mark] = []
    inner = scope
    with problems.kept():
        module_marks = _module_marks(source, source.tree.body)
    with problems.kept():
        inner = extended(scope, fixtures_of(source, source.tree.body))
    for prefix, function, marks, own in _functions(source, inner, module_marks, problems):
        with problems.kept():
            file.tests.append(_test(source, f"{source.name}::{prefix}{function.name}", function, marks, own, method=bool(prefix)))
    return file


@dataclass(frozen=True)
class _Mark:
    name: str
    fixtures: tuple[str, ...] = ()


def _functions(source: Source, scope: Scope, marks: list[_Mark], problems: Problems) -> Iterator[tuple[str, Function, list[_Mark], Scope]]:
    """Each test with the prefix of its class, the marks around it, and the fixtures that it can ask for."""
    for node in source.tree.body:
        if isinstance(node, FUNCTION) and node.name.startswith("test"):
            yield "", node, marks, scope
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            with problems.kept():
                if node.bases or node.keywords or any(isinstance(n, FUNCTION) and n.name in ("__init__", "__new__") for n in node.body):
                    raise source.wrong(node, f"class {node.name}: write test classes without bases and without __init__; pytest calls them")
                decorated = [_mark(source, d) for d in reversed(node.decorator_list)]
                own = extended(scope, fixtures_of(source, node.body, method=True))
                around = [*_module_marks(source, node.body), *decorated, *marks]
                for inside in node.body:
                    if isinstance(inside, FUNCTION) and inside.name.startswith("test"):
                        yield f"{node.name}::", inside, around, own
                    elif isinstance(inside, ast.ClassDef) and inside.name.startswith("Test"):
                        raise source.wrong(inside, f"class {inside.name}: write no test class inside another")


def _test(source: Source, name: str, function: Function, around: list[_Mark], scope: Scope, *, method: bool) -> Test:
    marks = [*_own_marks(source, function), *around]
    for mark in marks:
        if mark.name in _REFUSED_MARKS:
            raise source.wrong(function, f"{function.name}: no {mark.name} here: {_REFUSED_MARKS[mark.name]}")
        if mark.name not in markers.MARKS and mark.name not in _PLAIN_MARKS:
            raise source.wrong(function, f"{function.name}: {unknown('mark', mark.name, markers.MARKS)}; marks are added in markers.py")
    claim = claim_of(source.name, function)
    fixtures = closure([*asked(function, method=method), *(name for mark in marks for name in mark.fixtures)], scope)
    if not fixtures.intersection(markers.ENGINE_FIXTURES):
        asks = f"ask for {', '.join(markers.ENGINE_FIXTURES)}, itself or through a fixture"
        raise source.wrong(function, f"{function.name} is judged on no engine: {asks}, or move it to tests/")
    return Test(name, source.where(function), claim, _kind(source, function, marks), tuple(mark.name for mark in marks), fixtures)


def _kind(source: Source, function: Function, marks: Iterable[_Mark]) -> str:
    folder = PurePosixPath(source.name).parent.name
    kind = next((mark.name for mark in marks if mark.name in markers.KINDS), folder)
    if kind not in markers.KINDS:
        raise source.wrong(function, f"put the file under suites/<kind>/ or mark it: {unknown('kind', kind, markers.KINDS)}")
    return kind


def _own_marks(source: Source, function: Function) -> list[_Mark]:
    found = []
    for decorator in reversed(function.decorator_list):  # as they apply
        stands_for = source.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if stands_for not in _DECORATORS:
            found.append(_mark(source, decorator))
    return found


def _module_marks(source: Source, body: Iterable[ast.stmt]) -> list[_Mark]:
    """The `pytestmark` of a module or a class."""
    given = [node for node in body if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and "pytestmark" in _targets(node)]
    if not given:
        return []
    node = given[-1]
    if len(given) > 1 or not isinstance(node, ast.Assign) or len(node.targets) > 1:
        raise source.wrong(node, "pytestmark: write it once, as one assignment")
    if isinstance(node.value, (ast.List, ast.Tuple)):
        return [mark for element in node.value.elts for mark in _element(source, element)]
    if source.dotted(getattr(node.value, "func", node.value)) == "markers.hardware_marks":
        return _hardware(source, node.value)
    return [_mark(source, node.value)]


def _element(source: Source, element: ast.expr) -> list[_Mark]:
    return _hardware(source, element.value) if isinstance(element, ast.Starred) else [_mark(source, element)]


def _mark(source: Source, node: ast.expr) -> _Mark:
    call = node if isinstance(node, ast.Call) else None
    stands_for = source.dotted(call.func if call else node)
    prefix, _, name = stands_for.rpartition(".")
    if prefix != "pytest.mark":
        said = "write pytest.mark.NAME, and hardware in pytestmark as *hardware_marks(...)"
        raise source.wrong(node, f"{ast.unparse(node)}: it is read without being run; {said}")
    if name != "usefixtures" or call is None:
        return _Mark(name)
    names = tuple(source.literal(argument, "usefixtures") for argument in call.args)
    return _Mark(name, names)


def _hardware(source: Source, node: ast.expr) -> list[_Mark]:
    form = 'hardware_marks(res={"cuda": "H100"}, num_cards=1)'
    if not isinstance(node, ast.Call) or source.dotted(node.func) != "markers.hardware_marks":
        raise source.wrong(node, f"*{ast.unparse(node)}: it is read without being run; write pytest.mark.NAME or *{form}")
    given = source.keywords(node, ("res", "num_cards"), form=form)
    if not isinstance(given.get("res"), dict) or type(given.get("num_cards", 1)) is not int:
        raise source.wrong(node, f"{ast.unparse(node)}: write {form}")
    try:
        return [_Mark(name) for name in markers.hardware_mark_names(**given)]
    except ValueError as wrong:
        raise source.wrong(node, str(wrong)) from None


def _read_registers(source: Source, file: SuiteFile, problems: Problems) -> None:
    at_module_level = [node.value for node in source.tree.body if isinstance(node, ast.Expr)]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.dotted(node.func) in _REGISTERS:
            with problems.kept():
                if node not in at_module_level:
                    raise source.wrong(node, f"{ast.unparse(node)}: write it at module level, where it counts for the whole file")
                profile, register = _register(source, node)
                if profile in file.registers:
                    raise source.wrong(node, f"profile {profile} is registered at {file.registers[profile].where} already; keep one")
                file.registers[profile] = register


def _register(source: Source, call: ast.Call) -> tuple[str, Register]:
    name = source.dotted(call.func)
    allowed = _REGISTERS[name]
    form = f"{name.rpartition('.')[2]}({', '.join(f'{keyword}=' for keyword in allowed)})"
    given = source.keywords(call, allowed, form=form)
    for needed in ("est_time", "suite"):
        if needed not in given:
            raise source.wrong(call, f"{ast.unparse(call)}: {needed} is missing; write {form}")
    seconds, suite = given["est_time"], given["suite"]
    profile = given.get("profile", "cpu") if "profile" in allowed else "gpu"
    if type(seconds) not in (int, float) or not math.isfinite(seconds) or seconds <= 0:
        raise source.wrong(call, f"est_time = {seconds!r}: write the seconds that the file takes an engine, a number above 0")
    for key, text in (("suite", suite), ("profile", profile)):
        if not isinstance(text, str) or not text:
            raise source.wrong(call, f"{key} = {text!r}: write a name")
    return profile, Register(float(seconds), suite, source.where(call))


def _targets(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [name.id for target in targets if target is not None for name in ast.walk(target) if isinstance(name, ast.Name)]


def _check_names(source: Source, problems: Problems) -> None:
    """What pytest would collect though no definition at module level says so, or would not though one does."""
    defined: dict[str, str] = {}
    for node in source.tree.body:
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            if _is_test(node.name) and node.name in defined:
                problems.add(f"{source.where(node)}: {node.name} is defined at {defined[node.name]} already; give one another name")
            defined[node.name] = source.where(node)
            continue
        names = [alias.asname or alias.name for alias in getattr(node, "names", []) if isinstance(alias, ast.alias)]
        names += _targets(node) if isinstance(node, (ast.Assign, ast.AnnAssign)) else []
        names += [inner.name for inner in ast.walk(node) if isinstance(inner, (*FUNCTION, ast.ClassDef))]
        for name in names:
            if _is_test(name) or name in ("*", "__test__", "pytest_plugins", "pytest_generate_tests"):
                text = f"{name}: pytest would see it, and a syntax tree does not say what it is; define tests at the top of the file, once"
                problems.add(f"{source.where(node)}: {text}")


def _is_test(name: str) -> bool:
    return name.startswith(("test", "Test"))


__all__ = ["Register", "SourceError", "SuiteFile", "Test", "read_suite_file"]
