"""The README is run: its adapter, its failure, its options."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The README's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run_suites(*args: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, from the root of the checkout."""
    return run_module("pytest", "-p", "no:cacheprovider", *args, path=path)


def run_module(*words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`python -m` with these words, from the root of the checkout."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(p) for p in (path, ROOT) if p])}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_adapter_runs(tmp_path: Path) -> None:
    """The README's adapter keeps every core claim, as it stands."""
    (adapter,) = blocks("python")
    (tmp_path / "readme_adapter.py").write_text(adapter, encoding="utf-8")

    run = run_suites("-m", "cpu", "--adapter", "readme_adapter:Adapter", "--engine", "transfer/mine", path=tmp_path)

    assert run.returncode == 0, run.stdout + run.stderr
    verdicts = re.search(r"transfer/mine@cpu +(\d+) +(\d+)", run.stdout)
    assert verdicts is not None
    assert int(verdicts[1]) >= 49, "the core claims pass"


def test_broken_adapter_fails(tmp_path: Path) -> None:
    """The same adapter with one line wrong does not."""
    (adapter,) = blocks("python")
    broken = adapter.replace(".flatten(1, 2)[:, :seq_len]", ".flatten(1, 2)[:, : seq_len - 1]")
    assert broken != adapter
    (tmp_path / "readme_adapter.py").write_text(broken, encoding="utf-8")

    run = run_suites("-m", "cpu", "--adapter", "readme_adapter:Adapter", "--engine", "transfer/mine", path=tmp_path)

    assert run.returncode == 1
    assert "transfer.payload.bits" in run.stdout


def test_failure_is_real() -> None:
    """The failure that the README shows is what the command gives."""
    shown = next(b for b in blocks("console") if "--fault" in b)
    command, _, text = shown.partition("\n")

    run = run_suites(*command.removeprefix("$ pytest ").split())

    assert text in run.stdout


def unknown_options(text: str) -> set[str]:
    """Options that the text names and neither pytest nor a command of `assay` takes."""
    named = set(re.findall(r"[`\[](--[a-z-]+)", text))
    commands = (["engines"], ["doctor"], ["bench", "duplex"], ["bench", "tier"], ["report"], ["report", "diff"], ["serve"])
    helps = [run_suites("--help"), *(run_module("harness", *command, "--help") for command in commands)]
    taken = {option for shown in helps for option in re.findall(r"--[a-z-]+", shown.stdout)}
    assert len(named) > 8
    return named - taken


def test_options_exist() -> None:
    """Each option that the README names is there."""
    assert unknown_options(README) == set()


def test_an_option_that_does_not_exist_is_seen() -> None:
    """Nor is the beginning of one an option."""
    assert unknown_options(f"{README} `--engin`") == {"--engin"}
