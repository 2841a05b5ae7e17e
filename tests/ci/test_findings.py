"""The scripts about released engines under ci/findings: each stands alone, and each known failure names the one that shows it."""

import ast
import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"vllm_omni": "vllm-omni", "moshi": "moshi", "vllm": "vllm"}
"""What the names of scripts begin with, which is also what they import, to the engine's distribution."""
SCRIPTS = sorted({script for package in PACKAGES for script in (ROOT / "ci" / "findings").glob(f"{package}_*.py")})
FAILURES = tomllib.loads((ROOT / "ci" / "known_failures.toml").read_text())["failure"]


def foreign_imports(source: str) -> set[str]:
    """Packages that a script imports beside the standard library, the engines' and torch."""
    named = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            named.add(node.module or ".")
    return {name.partition(".")[0] for name in named} - set(sys.stdlib_module_names) - {*PACKAGES, "torch"}


def unshown(failures: list[dict]) -> list[str]:
    """Claims that these engines are said to break, where no script that exists is named."""
    names = {script.name for script in SCRIPTS}
    ours = [failure for failure in failures if any(engine in failure["engine"] for engine in PACKAGES.values())]
    return [failure["claim"] for failure in ours if not names & set(re.findall(r"ci/findings/(\w+\.py)", failure["evidence"]))]


def says_what_it_owes(source: str) -> bool:
    """Whether the docstring names versions and what is expected, and the script can exit with either status."""
    text = ast.get_docstring(ast.parse(source)) or ""
    return (
        bool(re.search(rf"({'|'.join(PACKAGES.values())}) 0\.\d+\.\d+", text))
        and "Expected: " in text
        and "sys.exit(0 if shows() else 1)" in source
    )


def test_there_are_scripts():
    assert SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_compiles_and_stands_alone(script):
    source = script.read_text()
    compile(source, str(script), "exec")

    assert foreign_imports(source) == set()
    assert says_what_it_owes(source)


def test_every_known_failure_names_its_script():
    assert unshown(FAILURES) == []


def test_what_is_missing_is_noticed():
    assert foreign_imports("import harness.transfer\nimport torch") == {"harness"}
    assert foreign_imports("from fixtures.transfer import boundary") == {"fixtures"}
    assert not says_what_it_owes('"""Something is wrong in vllm-omni 0.28.0."""\nimport sys\nsys.exit(0 if shows() else 1)')
    failure = {"engine": "transfer/vllm-omni", "claim": "a.b.c", "evidence": "seen"}
    assert unshown([failure]) == ["a.b.c"]
    assert unshown([failure | {"evidence": "ci/findings/no_such_script.py"}]) == ["a.b.c"]
