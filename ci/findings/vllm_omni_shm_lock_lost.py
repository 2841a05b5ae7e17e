"""A put under a key that is being read loses its lock file to the reader: the payload is there, and no get can have it.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: what a put said it carried can be got.
Exits 0 while it shows, 1 once it does not.
"""

import os
import sys
import threading
from pathlib import Path

from vllm_omni.distributed.omni_connectors.connectors.shm_connector import SharedMemoryConnector


def lost(connector: SharedMemoryConnector, key: str) -> bool:
    """Put again while a get reads the key, then get that."""
    segment = Path("/dev/shm") / key
    connector.put("0", "1", key, b"x" * (64 << 20))
    reader = threading.Thread(target=SharedMemoryConnector({}).get, args=("0", "1", key))
    reader.start()
    while reader.is_alive() and segment.exists():
        pass  # the reader is about to take its copy, or takes it
    ok, _, _ = connector.put("0", "1", key, b"second")
    reader.join()
    found = connector.get("0", "1", key)
    there = segment.exists()
    connector.cleanup(key)
    return ok and found is None and there


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    connector = SharedMemoryConnector({})
    tries = 20
    count = sum(lost(connector, f"finding-{os.getpid()}-{n}") for n in range(tries))
    print(f"in {count} of {tries} tries the second put said True, its segment is there, and get says None")
    return count > 0


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
