"""A command under a lifeline ends with whoever asked for it, and says how it ended."""

import os
import select
import signal
import subprocess
import sys

import pytest

from harness.core import lifeline

HANGS = "import os, threading; print(os.getpid(), flush=True); threading.Event().wait(120)"
DEADLINE = 60.0


def start(script: str) -> subprocess.Popen:
    command = [sys.executable, lifeline.__file__, sys.executable, "-c", script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize(
    ("script", "status"),
    [("", 0), ("raise SystemExit(5)", 5), ("import os; os.kill(os.getpid(), 9)", 137)],
    ids=["well", "badly", "killed"],
)
def test_the_exit_status_is_the_commands(script, status):
    """Of one that a signal ended: 128 more than the signal."""
    with start(script) as process:
        assert process.wait(DEADLINE) == status


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_the_command_ends_with_the_pipe(killed):
    """Also where the process that was started is killed first, as a holder may do to its children when it goes down."""
    with start(HANGS) as process:
        running = os.pidfd_open(int(process.stdout.readline()))
        if killed:
            process.send_signal(signal.SIGKILL)
            process.wait(DEADLINE)
        still_running = not select.select([running], [], [], 0)[0]
        process.stdin.close()

        assert still_running
        assert select.select([running], [], [], DEADLINE)[0]
        os.close(running)
