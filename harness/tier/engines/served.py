"""A server in a process of its own: started, waited for until it is healthy, and gone for certain afterwards."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from harness.tier import lifeline

STEP = 0.1
"""Seconds between two looks at a server that is starting."""
QUOTED = 6
"""Lines of its log that an error quotes."""
_URL = re.compile(r"http://[\w.\[\]:-]+:\d+")


class Served:
    """The process. Its output goes to a file, which an error quotes; it ends with `close`, and also when this process is killed.

    `url`: where it will listen; None: it prints the address once it listens. RuntimeError if it ends, TimeoutError if it is not healthy
    after `deadline` seconds; it is gone after both.
    """

    def __init__(self, command: Sequence[str], url: str | None, deadline: float, environment: Mapping[str, str] | None = None) -> None:
        self._command = list(command)
        self._log = tempfile.NamedTemporaryFile(prefix="assay-server-", suffix=".log")  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            [sys.executable, lifeline.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        try:
            self.url = self._healthy(url, time.monotonic() + deadline, deadline)
        except BaseException:
            self.close()
            raise

    def _healthy(self, url: str | None, until: float, deadline: float) -> str:
        while time.monotonic() < until:
            url = url or self._printed()
            if url and _answers(url):
                return url
            try:
                status = self._process.wait(STEP)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError(f"{self._what} ended with status {status} before it was healthy; its log ends: {self.quote()}")
        raise TimeoutError(f"{self._what} is not healthy after {deadline:g} s (option deadline); its log ends: {self.quote()}")

    @property
    def _what(self) -> str:
        return shlex.join(self._command[:4])

    def _printed(self) -> str | None:
        found = _URL.search(self.log())
        return found[0] if found else None

    def log(self) -> str:
        """What it has written so far."""
        return Path(self._log.name).read_text(errors="replace")

    def quote(self) -> str:
        """The end of it in one line."""
        lines = [line.strip() for line in self.log().splitlines() if line.strip()]
        return " / ".join(lines[-QUOTED:]) or "(it wrote nothing)"

    def check(self) -> None:
        """RuntimeError that quotes the log if it has ended."""
        status = self._process.poll()
        if status is not None:
            raise RuntimeError(f"{self._what} ended with status {status}; its log ends: {self.quote()}")

    def close(self) -> None:
        """End it and everything that it started. May be called twice."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(lifeline.GRACE + 5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def free_port() -> int:
    """A port of the loopback device that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False
