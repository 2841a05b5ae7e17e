"""Every environment under ci/engines holds what a run imports before any engine is asked for: conftest's plugins and all below them."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = sorted((ROOT / "ci" / "engines").glob("*.txt"))


def file_of(module: str) -> Path | None:
    """A module of this checkout."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def imported(source: str) -> set[str]:
    """What the source imports as it is loaded, every name from there, and the plugins it hands to pytest: no function's imports."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytest_plugins":
            names |= set(ast.literal_eval(node.value)) - {"pytester"}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def foreign(*modules: str) -> set[str]:
    """The packages beside the standard library and this checkout that loading the modules loads."""
    open_, seen, found = list(modules), set(), set()
    while open_:
        name = open_.pop()
        if name in seen:
            continue
        seen.add(name)
        file, top = file_of(name), name.partition(".")[0]
        if file is not None:
            open_ += [*imported(file.read_text(encoding="utf-8")), *([name.rpartition(".")[0]] if "." in name else [])]
        elif file_of(top) is None and not (ROOT / top).is_dir() and top not in sys.stdlib_module_names:
            found.add(top)
    return found


def pinned(text: str) -> set[str]:
    """The distributions that an environment's file names."""
    return {normal(line.partition("==")[0]) for line in text.splitlines() if line and not line.startswith("#")}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def lacking(text: str, packages: set[str]) -> set[str]:
    """Packages that no distribution of the environment brings."""
    brought_by = packages_distributions()
    return {package for package in packages if not {normal(name) for name in brought_by[package]} & pinned(text)}


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda path: path.stem)
def test_an_environment_can_load_the_plugins(environment):
    packages = foreign("conftest")

    assert {"pytest", "torch", "httpx"} <= packages
    assert lacking(environment.read_text(), packages) == set()


def test_what_is_lacking_is_noticed():
    text = "\n".join(line for line in ENVIRONMENTS[0].read_text().splitlines() if not line.startswith("httpx"))

    assert lacking(text, foreign("conftest")) == {"httpx"}
    assert imported("import a\ndef f():\n    import b\nif x:\n    import c\n") == {"a"}
