"""Children of a test, forked so that they need not import torch again."""

import os
import select
import signal
import traceback
from contextlib import contextmanager

LIMIT = 20.0
"""Seconds of wall time for a child to say something."""


class Child:
    """Runs `function(tell)` in a forked process; `tell(byte)` reaches `hear`. Killed, if need be, and reaped at the end."""

    def __init__(self, function):
        self._ear, mouth = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                function(lambda byte=b".": os.write(mouth, byte), mouth)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(mouth)
        self.status = None

    def hear(self):
        """The next byte that it tells; b"" once it ended."""
        ready, _, _ = select.select([self._ear], [], [], LIMIT)
        if not ready:
            raise TimeoutError(f"the child said nothing for {LIMIT:g} s")
        return os.read(self._ear, 1)

    def kill(self):
        """SIGKILL: no handler and no clean-up runs."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self):
        """Its exit status, negative for a signal."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ear)
        return self.status


@contextmanager
def child(function):
    """A child that does not outlive the block."""
    born = Child(function)
    try:
        yield born
    finally:
        if born.status is None:
            born.kill()


def stand_still():
    """Until killed."""
    while True:
        signal.pause()
