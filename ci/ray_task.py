"""The half of a Ray run that runs on a node: one attempt at one shard, told as it goes.

Pickled by value, so that a worker imports nothing of Assay's: what it runs is the node's own checkout, in a process of its own. That
process ends with the worker, however the worker ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LIFELINE = "harness/core/lifeline.py"
OWN = "own"
"""As ci.lanes has it, which is not imported here."""
TICK = 0.5
"""Seconds between two looks at the report log."""
CHUNK = 64 * 2**10
"""Bytes of one message: what is as small as this travels to the driver with the message, and outlives the node."""
TAIL = 16 * 2**10
"""Bytes of the output that are sent back."""

Message = tuple[str, Any]
"""What is told.

`refused` why; `started` host and resources; `log` and `junit` bytes; `late` seconds; `ended` exit status and the output's tail.
"""


def commit_of(checkout: Path) -> str:
    """The checkout's commit, `+` if it has changes, as the session record has it; empty outside of git."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def attempt(order: Mapping[str, Any]) -> Iterator[Message]:
    """Run `order` on this node.

    Its keys: name, environment, platform, command (what follows the Python), checkout, python (empty: the environment's own, built where it
    is not there), commit, seconds (its limit), most_bytes (of both files).
    """
    import ray

    checkout, python = Path(order["checkout"]), order["python"] or sys.executable
    refusal = _refusal(order, checkout, python)
    if refusal:
        yield "refused", f"{socket.gethostname()}: {refusal}"
        return
    end = time.monotonic() + order["seconds"]
    with tempfile.TemporaryDirectory(prefix="assay-shard-") as folder:
        output = Path(folder, "output")
        yield "started", (socket.gethostname(), ray.get_runtime_context().get_assigned_resources())
        if order["environment"] != OWN and not order["python"]:
            python = _engine_python(order, checkout, output, end)
            if not python:
                yield "refused", f"{socket.gethostname()}: environment {order['environment']} was not built"
                yield "ended", (None, _tail(output))
                return
        with _started([python, *order["command"], "--out", folder], checkout, output) as process:
            yield from _follow(order, process, Path(folder, order["name"]), end)
            yield "ended", (process.returncode, _tail(output))


def _refusal(order: Mapping[str, Any], checkout: Path, python: str) -> str:
    """Why this node cannot run it, or nothing."""
    if not (checkout / LIFELINE).is_file():
        return f"no checkout of Assay at {checkout}; put one there on every node, or name another path with --checkout"
    if not Path(python).is_file():
        return f"no Python at {python}; install Assay there on every node, or name another with --python"
    found = commit_of(checkout)
    if found != order["commit"]:
        return f"{checkout} is at commit {found or 'none'}, the driver's at {order['commit'] or 'none'}; check out the same on every node"
    return ""


@contextlib.contextmanager
def _started(command: Sequence[str], checkout: Path, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in the checkout, as a process that ends with this block, and with this worker."""
    with output.open("wb") as file:
        watched = [sys.executable, str(checkout / LIFELINE), *command]
        process = subprocess.Popen(watched, cwd=checkout, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()


def _runs(process: subprocess.Popen[bytes]) -> bool:
    """Whether it still does, a tick from now."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(TICK)
    return process.returncode is None


def _engine_python(order: Mapping[str, Any], checkout: Path, output: Path, end: float) -> str:
    """The Python of an engine's environment, which is built where it is not there yet; empty where that fails or takes too long."""
    command = [sys.executable, "ci/engine_env.py", "--platform", order["platform"], order["environment"]]
    with _started(command, checkout, output) as building:
        while _runs(building) and time.monotonic() < end:
            pass
    printed = _tail(output).decode(errors="replace").splitlines()
    return printed[-1] if building.returncode == 0 and printed else ""


def _tail(output: Path) -> bytes:
    with output.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        return file.read()


def _follow(order: Mapping[str, Any], process: subprocess.Popen[bytes], files: Path, end: float) -> Iterator[Message]:
    """Tell of the report log while it grows, then of the JUnit file; stops at the limit of time or bytes."""
    told, running = 0, True
    while running:
        running = _runs(process)
        for data in _chunks(files.with_name(files.name + ".jsonl"), told):
            told += len(data)
            if told > order["most_bytes"]:
                break
            yield "log", data
        if told > order["most_bytes"]:
            yield "refused", f"its report log passes {order['most_bytes']} bytes; allow more with --max-mib"
            return
        if running and time.monotonic() > end:
            yield "late", order["seconds"]
            return
    for data in _chunks(files.with_name(files.name + ".xml"), 0):
        told += len(data)
        if told > order["most_bytes"]:
            yield "refused", f"its report log and JUnit file pass {order['most_bytes']} bytes; allow more with --max-mib"
            return
        yield "junit", data


def _chunks(path: Path, start: int) -> Iterator[bytes]:
    """What the file holds from `start` on, as of now; nothing where there is none yet."""
    if path.is_file():
        with path.open("rb") as file:
            file.seek(start)
            while data := file.read(CHUNK):
                yield data
