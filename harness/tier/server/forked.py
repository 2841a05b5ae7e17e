"""The life of a forked `assay` command: its output goes to a file, and it ends when the process that asked for it does."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys


def main(arguments: list[str], log: str, lifeline: socket.socket) -> None:
    """Run `assay ARGUMENTS`; ends with its exit status. `lifeline` says nothing: the kernel sends SIGKILL once its other end is closed."""
    _die_with(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    import torch

    from harness.__main__ import main as assay

    torch.set_num_threads(1)
    sys.exit(assay(arguments))


def _die_with(lifeline: socket.socket) -> None:
    """A server that hangs would not notice by itself; and its parent by birth outlives the run for as long as it has children."""
    if not hasattr(fcntl, "F_SETSIG"):  # on Linux only
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was closed before
        os._exit(1)
