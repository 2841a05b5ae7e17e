"""An engine that goes wrong in every way that a call in a child can."""

import os
import threading

from harness.core.capabilities import ConnectorCap


class OddError(Exception):
    """Known to nobody else."""


class Awkward:
    spec = {  # noqa: RUF012
        "name": "connector/awkward",
        "summary": "goes wrong",
        "profiles": {"cpu": {}},
        "capabilities": {cap.value: {"support": "never", "reason": "it is awkward"} for cap in ConnectorCap},
    }

    @staticmethod
    def available():
        return None

    @staticmethod
    def build(config, clock):
        return Awkward()

    def connector(self, address=None):
        return self

    def usage(self):
        return {}

    def close(self):
        pass

    def refuse(self):
        raise ValueError("seq_len = -1")

    def fail_oddly(self):
        raise OddError("no such page")

    def hang(self, *arguments):
        threading.Event().wait()

    def flood(self, size):
        return b"x" * size

    def swallow(self, data):
        return len(data)

    def leave(self):
        os._exit(7)

    def keep_a_thread(self):
        threading.Thread(target=threading.Event().wait).start()

    def unfit(self):
        return threading.Lock()
