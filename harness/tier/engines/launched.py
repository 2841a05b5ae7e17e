"""Two ways to have a server in a process of its own that does not outlive this one: a command, and `assay serve` in a fork."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness.core import lifeline
from harness.tier.server import forked

FORKSERVER = multiprocessing.get_context("forkserver")
PRELOADED = ("harness.tier.server.forked", "harness.tier.server.command", "harness.tier.engines.reference", "harness.tier.faults")
"""What takes seconds to import, and is imported once."""


class Launched(Protocol):
    """A process that was started. `what` names it in errors."""

    what: str

    def wait(self, timeout: float) -> int | None:
        """Its exit status; None while it runs, after `timeout` seconds."""
        ...

    def stop(self) -> None:
        """Ask it to end, and make it end."""
        ...


class Command:
    """`command`, watched by lifeline.py, its output in the file `log`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.what = " ".join(command[:4])
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, lifeline.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
            )

    def wait(self, timeout: float) -> int | None:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self.wait(lifeline.GRACE + 5.0) is None:
            self._process.kill()
            self._process.wait()


class Forked:
    """`python -m harness ARGUMENTS`, forked from a process that has imported what takes seconds."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.what = "assay " + " ".join(arguments[:3])
        FORKSERVER.set_forkserver_preload(list(PRELOADED))
        self._lifeline, theirs = socket.socketpair()
        self._process = FORKSERVER.Process(target=forked.main, args=(list(arguments), str(log), theirs), name="assay: server")
        try:
            self._process.start()
        except BaseException:
            self._lifeline.close()
            raise
        finally:
            theirs.close()

    def wait(self, timeout: float) -> int | None:
        self._process.join(timeout)
        return self._process.exitcode

    def stop(self) -> None:
        self._process.terminate()
        if self.wait(lifeline.GRACE) is None:
            self._process.kill()
            self._process.join()
        self._lifeline.close()
        self._process.close()
