"""Builds the virtual environment of one engine: `python ci/engine_env.py NAME` prints the path of its Python, as its last line.

The engines' pins conflict, so each gets a venv of its own under `.engines/`, made from `ci/engines/NAME.txt` and reused until that file or
the Python changes. Runs before anything is installed, so on the standard library alone. Progress goes to stderr.
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


class CannotBuild(Exception):
    """The name or the Python is wrong; the text says what to give instead."""


def requirements(root: Path, name: str) -> Path:
    """The environment file of `name`. One that says `# Python 3.11` is built with no other."""
    known = {path.stem: path for path in sorted((root / "ci" / "engines").glob("*.txt"))}
    if name not in known:
        raise CannotBuild(f"no engine environment {name!r}; ci/engines has {', '.join(known) or 'none'}")
    wanted = re.search(r"^# Python (3\.\d+)$", known[name].read_text(), re.MULTILINE)
    running = "{}.{}".format(*sys.version_info)
    if wanted and wanted[1] != running:
        raise CannotBuild(f"ci/engines/{name}.txt is for Python {wanted[1]}, this is {running}; run it with python{wanted[1]}")
    return known[name]


def location(root: Path, name: str) -> Path:
    """Where the venv belongs; its name changes with the file and with the Python."""
    digest = hashlib.sha256(requirements(root, name).read_bytes() + platform.python_version().encode())
    return root / ".engines" / f"{name}-{digest.hexdigest()[:12]}"


def is_complete(venv: Path) -> bool:
    """Whether its build ran to the end, and here."""
    marker = venv / MARKER
    return marker.is_file() and marker.read_text() == str(venv)


def build(root: Path, name: str) -> Path:
    """Make the venv of `name`, or find it made; returns its Python. CalledProcessError where a step fails."""
    venv = location(root, name)
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
        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
        _run(sys.executable, "-m", "venv", venv)
        # Most modules of an engine are never imported: compiling each takes longer than unpacking it.
        _run(*install, "--no-compile", "--requirement", requirements(root, name))
        # Built with the setuptools that the file brings, so that nothing else is fetched.
        _run(*install, "--no-build-isolation", "--editable", root)
        (venv / MARKER).write_text(str(venv))
        _say(f"built in {time.monotonic() - start:.0f} s")
    return python


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
    parser.add_argument("name", metavar="NAME", help="a file of ci/engines, without .txt")
    try:
        print(build(root, parser.parse_args(arguments).name))
    except CannotBuild as wrong:
        _say(str(wrong))
        return 2
    except subprocess.CalledProcessError as failed:
        _say(f"failed: {' '.join(failed.cmd)}")
        return failed.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
