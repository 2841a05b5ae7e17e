"""SharedMemoryConnector names segments by key alone: a get is given what was put for another pair of stages.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: stages are part of the key, as in the engine's five other connectors (`_make_key`).
Exits 0 while it shows, 1 once it does not.
"""

import os
import sys

from vllm_omni.distributed.omni_connectors.connectors.shm_connector import SharedMemoryConnector


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    connector = SharedMemoryConnector({})
    key = f"finding-{os.getpid()}"
    connector.put("0", "1", key, b"for stage 1")
    connector.put("0", "2", key, b"for stage 2")
    got = [connector.get("0", stage, key) for stage in ("1", "2")]
    connector.close()
    print(f"put for stages 1 and 2 under one key; stage 1 got {got[0]}, stage 2 got {got[1]}")
    return got[0] is None or got[0][0] != b"for stage 1"


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
