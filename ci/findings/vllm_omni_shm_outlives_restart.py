"""What a killed sender put stays in /dev/shm, nobody removes it, and a later process is given it under the same key.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: after a restart of both sides a request is given what was sent since, and what dead processes
left is removed by their peers or at the next start. (Both share one resource tracker, as the engine's stage processes do; that removes
it when the last of them, and whoever started them, has ended.)
Exits 0 while it shows, 1 once it does not.
"""

import multiprocessing
import os
import sys
from multiprocessing import resource_tracker
from pathlib import Path

from vllm_omni.distributed.omni_connectors.connectors.shm_connector import SharedMemoryConnector

NAME = f"finding-{os.getpid()}"
SHM = Path("/dev/shm")


def put(name: str, ready: multiprocessing.Event) -> None:
    """The sender's first life."""
    SharedMemoryConnector({}).put("0", "1", name, b"old" * 1000)
    ready.set()
    multiprocessing.Event().wait()


def restart(name: str, answers: multiprocessing.Queue) -> None:
    """Both sides come back: a sender that has put nothing yet, and a receiver."""
    sender, receiver = SharedMemoryConnector({}), SharedMemoryConnector({})
    found = receiver.get("0", "1", name)
    sender.close()
    receiver.close()
    answers.put(None if found is None else len(found[0]))


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    context = multiprocessing.get_context("fork")
    resource_tracker.ensure_running()
    ready, answers = context.Event(), context.Queue()
    sender = context.Process(target=put, args=(NAME, ready))
    sender.start()
    ready.wait(60)
    sender.kill()
    sender.join()
    left = sorted(path.name for path in SHM.glob(f"*{NAME}*"))
    print(f"left by the killed sender: {left}")
    later = context.Process(target=restart, args=(NAME, answers))
    later.start()
    delivered = answers.get(timeout=60)
    later.join()
    print(f"delivered after the restart: {delivered} bytes")
    for path in SHM.glob(f"*{NAME}*"):
        path.unlink()
    return bool(left) and delivered is not None


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
