"""A put under a key with a letter outside ASCII fails after it has made its segment, and leaves that and a lock file behind.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: the put works, or leaves nothing: request ids come from clients.
Exits 0 while it shows, 1 once it does not.
"""

import os
import sys
from pathlib import Path

from vllm_omni.distributed.omni_connectors.connectors.shm_connector import SharedMemoryConnector


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    connector = SharedMemoryConnector({})
    key = f"finding-{os.getpid()}-é"
    ok, _, _ = connector.put("0", "1", key, b"payload")
    connector.close()
    left = [path for path in Path("/dev/shm").iterdir() if key in path.name]
    print(f"put said {ok}; after close there are {[path.name for path in left]}")
    for path in left:
        path.unlink()
    return not ok and bool(left)


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
