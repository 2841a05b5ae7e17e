"""Claims: one requirement each, with a stable dotted id, a level, one sentence and a source.

`@claim` is read twice: by pytest, from the decorated function, and by tools that must not import a suite, from its syntax tree.
The second reader is here too, so that both say the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])

_ID = re.compile(r"[a-z]+(\.[a-z0-9_]+){2,}")


class Level(str, Enum):
    """How much an engine owes a claim."""

    MUST = "MUST"
    SHOULD = "SHOULD"

    def __str__(self) -> str:
        return self.value


class ClaimError(ValueError):
    """A claim is missing, malformed or made twice; the text names the test and what to write."""


@dataclass(frozen=True)
class Claim:
    """One requirement. `where` is `file:line` of its test; `requires` names the capabilities it asks for."""

    id: str
    level: Level
    source: str
    sentence: str = ""
    where: str = ""
    requires: tuple[str, ...] = ()


def claim(id: str, *, level: Level = Level.MUST, source: str) -> Callable[[Test], Test]:
    """Say which requirement a test judges. `source` is where the requirement comes from; the sentence is the docstring's first line."""
    _check_id(id)
    if not source.strip():
        raise ClaimError(f"claim {id}: source is empty; say where the requirement comes from")

    def mark(test: Test) -> Test:
        if hasattr(test, "assay_claim"):
            raise ClaimError(f"{test.__name__}: @claim stands twice ({test.assay_claim.id} and {id}); keep one")
        test.assay_claim = Claim(id, Level(level), source, first_line(test.__doc__))  # type: ignore[attr-defined]
        return test

    return mark


def first_line(docstring: str | None) -> str:
    """The sentence of a claim, or an empty string."""
    return docstring.strip().splitlines()[0].strip() if docstring and docstring.strip() else ""


def read_claims(paths: Iterable[Path]) -> list[Claim]:
    """The claims of all `test_*.py` below `paths`, from their syntax trees, in file order. Raises ClaimError."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    found = [c for file in files for c in _claims_of(file)]
    _check_unique(found)
    return found


def _claims_of(file: Path) -> list[Claim]:
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    tests = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name.startswith("test_")]
    # A walk goes level by level, and would put what stands in a class last.
    return [claim_of(str(file), test) for test in sorted(tests, key=lambda test: test.lineno)]


def claim_of(file: str, test: ast.FunctionDef | ast.AsyncFunctionDef) -> Claim:
    """The claim of a test of `file`, from its syntax tree. Raises ClaimError."""
    where = f"{file}:{test.lineno}"
    calls = [d for d in test.decorator_list if isinstance(d, ast.Call)]
    claims = [c for c in calls if _name(c.func) == "claim"]
    if len(claims) != 1:
        raise ClaimError(f"{where}: {test.name} carries {len(claims)} @claim; write exactly one")
    keywords = {k.arg: k.value for k in claims[0].keywords}
    id, source = _constant(where, _first(claims[0], "id")), _constant(where, keywords.get("source"))
    _check_id(id)
    level = _name(keywords["level"]) if "level" in keywords else Level.MUST.value
    if level not in Level.__members__:
        raise ClaimError(f"{where}: @claim takes level = Level.MUST or Level.SHOULD")
    asked = tuple(_name(_first(c, "capability")).lower() for c in calls if _name(c.func) == "requires")
    sentence = first_line(ast.get_docstring(test))
    if not sentence:
        raise ClaimError(f"{where}: {test.name} has no docstring; its first line is the sentence of {id}")
    return Claim(id, Level(level), source, sentence, where, asked)


def _first(call: ast.Call, name: str) -> ast.expr | None:
    """The first argument, given by position or by name."""
    return call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == name), None)


def _constant(where: str, node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ClaimError(f"{where}: @claim takes literal strings for its id and source")


def _name(node: ast.expr | None) -> str:
    """`f` of `f` and of `module.f`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _check_id(id: str) -> None:
    if not _ID.fullmatch(id):
        raise ClaimError(f"claim id {id!r}: write kind.topic.name in lower case, such as duplex.isolation.recycle")


def _check_unique(claims: list[Claim]) -> None:
    first: dict[str, Claim] = {}
    for one in claims:
        if one.id in first:
            raise ClaimError(f"claim {one.id} is made at {first[one.id].where} and again at {one.where}; ids are unique")
        first[one.id] = one
