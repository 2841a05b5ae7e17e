"""A server in a process of its own: waited for until it is healthy, its log quoted when it dies, and gone for certain afterwards."""

from __future__ import annotations

import re
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from harness.tier.engines.launched import Launched

STEP = 0.05
"""Seconds between two looks at a server that is starting."""
QUOTED = 6
"""Lines of its log that an error quotes."""
_URL = re.compile(r"http://[\w.\[\]:-]+:\d+")


class Served:
    """What `launch`, given the file for its output, starts. It ends with `close`, and also when this process is killed.

    `url`: where it will listen; None: it prints the address once it listens. RuntimeError if it ends, TimeoutError if it is not healthy
    after `deadline` seconds; it is gone after both.
    """

    def __init__(self, launch: Callable[[Path], Launched], url: str | None, deadline: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="assay-server-")
        self._log = Path(self._folder.name) / "log"
        self._launched = launch(self._log)
        self._closed = False
        try:
            self.url = self._healthy(url, deadline)
        except BaseException:
            self.close()
            raise

    def _healthy(self, url: str | None, deadline: float) -> str:
        until = time.monotonic() + deadline
        while time.monotonic() < until:
            url = url or self._printed()
            if url and _answers(url):
                return url
            self._check(STEP, "before it was healthy")
        raise TimeoutError(f"{self._launched.what} is not healthy after {deadline:g} s (option deadline); its log ends: {self.quote()}")

    def _printed(self) -> str | None:
        found = _URL.search(self.log())
        return found[0] if found else None

    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def quote(self) -> str:
        """The end of it in one line."""
        lines = [line.strip() for line in self.log().splitlines() if line.strip()]
        return " / ".join(lines[-QUOTED:]) or "(it wrote nothing)"

    def check(self) -> None:
        """RuntimeError that quotes the log if it has ended."""
        self._check(0.0, "in the middle of its work")

    def _check(self, timeout: float, when: str) -> None:
        status = self._launched.wait(timeout)
        if status is not None:
            raise RuntimeError(f"{self._launched.what} ended with status {status} {when}; its log ends: {self.quote()}")

    def close(self) -> None:
        """End it and everything that it started. May be called twice."""
        if not self._closed:
            self._closed = True
            self._launched.stop()
            self._folder.cleanup()


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
