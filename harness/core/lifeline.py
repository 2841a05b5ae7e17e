"""Runs a command that does not outlive the process that asked for it: `python lifeline.py COMMAND...`, with a pipe as standard input.

When the pipe ends, as it does when its holder closes it or is killed, the command's whole process group is asked to end, and after
GRACE seconds made to. Run by its path, so that it starts without importing the rest of Assay.

The process that was started only waits for one of its own that watches the pipe: a holder that ends its children as it goes down, as a
worker of Ray's does, must not end what watches it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE = 10.0
"""Seconds between the two signals."""


def main(command: list[str]) -> None:
    """Run it; ends with its exit status, with 127 where it cannot be started."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Sent to the group of whoever asked for it: that process decides. No SIG_IGN, which the command would inherit.
        signal.signal(number, lambda *_: None)
    watcher = os.fork()
    if watcher:
        os.close(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1]))
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as wrong:
        print(f"{command[0]}: {wrong.strerror}", flush=True)
        os._exit(127)
    threading.Thread(target=_end_with, args=(child,), daemon=True).start()
    while os.read(0, 1):
        pass
    _signal(child, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE)
    _signal(child, signal.SIGKILL)
    os._exit(0)


def _end_with(child: subprocess.Popen[bytes]) -> None:
    status = child.wait()
    _signal(child, signal.SIGKILL)  # what it may have left behind
    os._exit(status if status >= 0 else 128 - status)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    main(sys.argv[1:])
