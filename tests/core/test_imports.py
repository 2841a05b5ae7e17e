"""Imports point one way: core, then each kind for itself, then the plugin, then suites, which stay outside of engines."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = [path.parent.name for path in sorted(ROOT.glob("harness/*/protocol.py"))]
ABOVE = ("pytest", "_pytest", "conftest", "fixtures", "markers", "suites", "tests", "harness.pytest_plugin")
"""What core and the kinds stand below."""
INSIDES = ("reference", "engines", "faults", "wrong_inputs")
"""Of a kind: what no suite may look at."""


def imported(source: str) -> set[str]:
    """Every module that the source imports, and every name from one, wherever it stands."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def forbidden(path: str) -> list[str]:
    """What the module at `path` of the checkout may not import, nor anything below it."""
    top, folder = Path(path).parts[:2]
    others = [f"harness.{kind}" for kind in KINDS if kind != folder]
    if top == "suites":
        return [*others, *(f"harness.{folder}.{inside}" for inside in INSIDES)]
    return [*others, *ABOVE]


def wrong(path: str, source: str) -> list[str]:
    """What the module imports and may not."""
    return sorted(name for name in imported(source) if any(f"{name}.".startswith(f"{no}.") for no in forbidden(path)))


def test_imports_point_one_way():
    """Of core, of every kind, and of every suite of one."""
    folders = ["harness/core", *(f"harness/{kind}" for kind in KINDS), "suites"]
    modules = [path for folder in folders for path in sorted(ROOT.glob(f"{folder}/**/*.py"))]
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in modules}

    assert {"duplex", "tier", "transfer"} <= set(KINDS)
    assert {Path(path).parts[1] for path in found} == {"core", *KINDS}
    assert [(path, name) for path, source in found.items() for name in wrong(path, source)] == []


@pytest.mark.parametrize(
    ("path", "source", "names"),
    [
        ("harness/core/x.py", "def f():\n    import pytest", ["pytest"]),
        ("harness/core/x.py", "from harness import duplex", ["harness.duplex"]),
        (
            "harness/duplex/x.py",
            "from harness.transfer.workload import Workload",
            ["harness.transfer.workload", "harness.transfer.workload.Workload"],
        ),
        ("harness/duplex/engines/x.py", "import fixtures.duplex, harness.duplex.reference", ["fixtures.duplex"]),
        ("harness/duplex/x.py", "from harness.pytest_plugin import state", ["harness.pytest_plugin", "harness.pytest_plugin.state"]),
        (
            "suites/duplex/x.py",
            "from harness.duplex.reference import engine",
            ["harness.duplex.reference", "harness.duplex.reference.engine"],
        ),
        ("suites/duplex/x.py", "import pytest\nfrom fixtures.duplex import Stage\nfrom harness.duplex.protocol import Phase", []),
    ],
)
def test_what_points_elsewhere_is_found(path, source, names):
    """Wherever in the module it stands."""
    assert wrong(path, source) == names
