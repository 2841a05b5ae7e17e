"""Which Python files of the checkout a file can lead to: the graph of imports, from syntax trees.

An import counts wherever it stands, and so do names that are imported at run time: a text that is a module's name, as in `pytest_plugins`,
`module:attr` or `-m module`; an engine's name, which leads to its factory in harness/engines.toml; and an f-string given to
`import_module`, which stands for every module that it could name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ci.sources import Source, Sources
from harness.core.registry import builtin_specs

FOLDERS = ("ci", "fixtures", "harness", "suites")
"""Where what a lane can run lies, beside the files at the root. tests/ is no lane's business."""
PROOF_ONLY = r"harness\.[^.]+\.(faults|wrong_inputs)"
"""What `harness.core.faults` imports by kind: planted by --prove and --fault, which no lane gives."""

Graph = Mapping[str, frozenset[str]]
"""File to the files that it leads to; paths below the root, with slashes."""


def import_graph(root: Path) -> Graph:
    """The graph of every Python file. Raises SourceError for one that is none, and RegistryError for a wrong engines.toml."""
    sources = Sources(root)
    files = [*root.glob("*.py"), *(file for folder in FOLDERS for file in (root / folder).rglob("*.py"))]
    modules = {_module(file.relative_to(root)): file.relative_to(root).as_posix() for file in sorted(files)}
    engines = {spec.name: spec.factory.partition(":")[0] for spec in builtin_specs(root / "harness" / "engines.toml")}
    return {
        file: frozenset(other for name in _named(sources.read(root / file), module, modules, engines) for other in _files(name, modules))
        for module, file in modules.items()
    }


def reached(graph: Graph, roots: Iterable[str]) -> frozenset[str]:
    """The roots, and every file that they lead to."""
    seen, open_ = set(), list(roots)
    while open_:
        file = open_.pop()
        if file not in seen:
            seen.add(file)
            open_ += graph.get(file, ())
    return frozenset(seen)


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _files(name: str, modules: Mapping[str, str]) -> Iterator[str]:
    """The files that are loaded with a module: its own, and those of the packages that it lies in."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        file = modules.get(".".join(parts[:length]))
        if file is not None:
            yield file


def _named(source: Source, module: str, modules: Mapping[str, str], engines: Mapping[str, str]) -> Iterator[str]:
    """The modules that a file names, some of which may not be ours."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(source, module, node)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _of_text(node.value, modules, engines)
        elif isinstance(node, ast.Call) and _is_import(node.func):
            yield from (name for text in node.args[:1] if isinstance(text, ast.JoinedStr) for name in _of_fstring(text, modules))


def _is_import(function: ast.expr) -> bool:
    return getattr(function, "attr", getattr(function, "id", "")) in ("import_module", "__import__")


def _base(source: Source, module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return str(node.module)
    inside = module if source.name.endswith("__init__.py") else module.rpartition(".")[0]
    parts = inside.split(".")
    above = parts[: len(parts) - (node.level - 1)]
    return ".".join([*above, *([node.module] if node.module else [])])


def _of_text(text: str, modules: Mapping[str, str], engines: Mapping[str, str]) -> Iterator[str]:
    name = text.partition(":")[0]
    if name in modules:
        yield from (name, f"{name}.__main__")
    elif name in engines:
        yield engines[name]


def _of_fstring(text: ast.JoinedStr, modules: Mapping[str, str]) -> Iterator[str]:
    pattern = "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"[^.]+" for part in text.values)
    yield from (name for name in modules if re.fullmatch(pattern, name) and not re.fullmatch(PROOF_ONLY, name))
