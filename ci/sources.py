"""Python files as syntax trees: what their names stand for, and their literals. Nothing is imported, and no file is read twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class SourceError(ValueError):
    """A file says something that cannot be read without running it; the text names the file, the line and what to write."""


@dataclass(frozen=True)
class Source:
    """One file. `name` is its path below the root, with slashes; `stands_for` is local name to dotted path, of the file's imports."""

    name: str
    tree: ast.Module
    stands_for: Mapping[str, str]

    def where(self, node: ast.AST) -> str:
        """`file:line`."""
        return f"{self.name}:{getattr(node, 'lineno', 1)}"

    def dotted(self, node: ast.expr) -> str:
        """What a name or an attribute stands for, such as `pytest.mark.soak`; empty for any other expression."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.stands_for.get(node.id, node.id), *reversed(parts)])

    def literal(self, node: ast.expr, what: str) -> Any:
        """The value of a literal. Raises SourceError for anything that would have to be computed."""
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise self.wrong(node, f"{what} = {ast.unparse(node)}: it is read without being run; write the value itself") from None

    def keywords(self, call: ast.Call, allowed: tuple[str, ...], *, form: str) -> dict[str, Any]:
        """The literal keyword arguments of a call that takes no others. Raises SourceError that says the `form` to write."""
        if call.args or any(keyword.arg not in allowed for keyword in call.keywords):
            raise self.wrong(call, f"{ast.unparse(call)}: write {form}, each by its name and as a literal")
        return {str(keyword.arg): self.literal(keyword.value, str(keyword.arg)) for keyword in call.keywords}

    def wrong(self, node: ast.AST, text: str) -> SourceError:
        """An error at the node."""
        return SourceError(f"{self.where(node)}: {text}")


class Sources:
    """The files below a root, each parsed once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[Path, Source] = {}

    def read(self, path: Path) -> Source:
        """The file. Raises SourceError for one that is no Python."""
        if path not in self._read:
            name = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"), name)
            except (OSError, SyntaxError, ValueError) as broken:
                raise SourceError(f"{name}:{getattr(broken, 'lineno', None) or 1}: no Python file: {broken}") from None
            self._read[path] = Source(name, tree, dict(_imports(tree)))
        return self._read[path]


class Problems:
    """Every error that was met, so that all are told at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, text: str) -> None:
        """Keep one, once."""
        if text not in self.found:
            self.found.append(text)

    @contextmanager
    def kept(self, where: str = "") -> Iterator[None]:
        """Whatever ValueError is raised inside is kept, `where` before its text, and goes no further."""
        try:
            yield
        except ValueError as wrong:
            self.add(f"{where}: {wrong}" if where else str(wrong))


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import a.b` binds `a`, and `a.b` is then written out.
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}" if not node.level else alias.name
