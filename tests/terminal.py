"""Runs a command on a pseudo-terminal, or in a pipe, and returns what it wrote."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

SECONDS = 120.0


def on_terminal(command: Sequence[str], environment: Mapping[str, str], *, columns: int = 80) -> tuple[int, str]:
    """The exit status, and all that it wrote to a terminal of so many columns. TimeoutError after SECONDS."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    written, until = b"", time.monotonic() + SECONDS
    with subprocess.Popen(command, env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            while chunk := _read(ours, until):
                written += chunk
        except TimeoutError:
            process.kill()
            raise
        finally:
            os.close(ours)
    return process.returncode, written.decode(errors="replace")


def in_pipe(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """The same with both streams in one pipe."""
    ran = subprocess.run(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    return ran.returncode, ran.stdout.decode(errors="replace")


def _read(descriptor: int, until: float) -> bytes:
    """What comes next; nothing at the end, of which Linux tells by an error."""
    if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
        raise TimeoutError(f"it still ran after {SECONDS:g} s")
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
