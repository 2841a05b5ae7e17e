"""A writer killed in mid-copy leaves a segment of full size, and the next get delivers it: the file lock went with the writer.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: a payload is seen whole or not at all. (Writer and reader share one resource tracker, as the
engine's stage processes do.)
Exits 0 while it shows, 1 once it does not.
"""

import multiprocessing
import os
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path

from vllm_omni.distributed.omni_connectors.connectors.shm_connector import SharedMemoryConnector

SIZE = 512 << 20
"""Bytes: a copy that takes long enough to be caught."""
NAME = f"finding-{os.getpid()}"


def write(name: str) -> None:
    """What the writer's process does."""
    SharedMemoryConnector({}).put("0", "1", name, b"\xaa" * SIZE)


def kill_in_mid_copy(writer: multiprocessing.Process) -> None:
    """Kill the writer once the first of its pages hold bytes and the last do not."""
    segment = Path("/dev/shm") / NAME
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if segment.exists() and segment.stat().st_size > SIZE:
            with segment.open("rb") as file:
                if b"\xaa" in file.read(1 << 16):
                    writer.kill()
                    writer.join()
                    return
    raise TimeoutError("the writer did not begin within 60 s")


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    resource_tracker.ensure_running()
    connector = SharedMemoryConnector({})
    for attempt in range(5):
        writer = multiprocessing.get_context("fork").Process(target=write, args=(NAME,))
        writer.start()
        kill_in_mid_copy(writer)
        found = connector.get("0", "1", NAME)
        whole = found is not None and found[0].count(b"\xaa") == SIZE
        if found is None or not whole:
            break
        print(f"attempt {attempt}: the writer was done before it was killed")
    if found is None:
        print("the killed writer's payload is not delivered")
    else:
        print(f"delivered {len(found[0])} bytes, of which {found[0].count(0)} were never written")
    connector.cleanup(NAME)
    return found is not None and not whole


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
