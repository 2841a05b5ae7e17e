"""What runs beside the suites imports none of them, and not what they need."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(f"ci.{path.stem}" for path in ROOT.glob("ci/*.py") if path.stem != "ray_shards")
"""All but the part that needs Ray, which is no dependency."""

WATCH = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({"torch", "numpy", "ray", "suites", "fixtures", "conftest"} & set(sys.modules)))
"""


def imported(*names: str) -> str:
    """Which of those are imported with these modules."""
    command = [sys.executable, "-c", WATCH, *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_ci_imports_neither_torch_nor_suites_nor_ray():
    assert {"ci.collect", "ci.merge", "ci.ray_runner"} <= set(MODULES)
    assert imported(*MODULES) == ""


@pytest.mark.parametrize(("module", "brings"), [("harness.core.judge", "torch"), ("ci.ray_shards", "ray")])
def test_an_import_is_seen(module, brings):
    assert brings in imported(module).split()
