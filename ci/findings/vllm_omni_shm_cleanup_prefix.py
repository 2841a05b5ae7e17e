"""Cleaning up after one request takes away the payloads of others, whose keys begin or end with its id and an underscore.

Shows in vllm-omni 0.28.0; not in 0.30.0. Expected: cleanup frees what was put for that request.
Exits 0 while it shows, 1 once it does not.
"""

import os
import sys

from vllm_omni.distributed.omni_connectors.connectors.shm_connector import SharedMemoryConnector


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    connector = SharedMemoryConnector({})
    request = f"finding-{os.getpid()}"
    keys = [request, f"{request}_retry", f"other_{request}"]
    for key in keys:
        connector.put("0", "1", key, b"payload")
    connector.cleanup(request)
    left = [key for key in keys if connector.get("0", "1", key) is not None]
    connector.close()
    print(f"put {keys}; after cleanup({request!r}) there are {left}")
    return len(left) < 2


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
