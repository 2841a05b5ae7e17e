"""A leader dies in `distribute_kv_cache`: of three followers two are told at once, the third waits for one of them until gloo's timeout.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: every rank is told within a time that a request can wait. (gloo broadcasts from rank to rank;
a rank that was told keeps its connections, and the group is made without a timeout, so with torch's default of 30 minutes.)
Exits 0 while it shows, 1 once it does not.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

RANKS = 4
PATIENCE = 20.0
"""Seconds that a follower is given."""


def rank_process(rank: int, store: str, joined: multiprocessing.Barrier, told: multiprocessing.Queue) -> None:
    """One rank: leave before a word is said (the leader), or wait for the leader's payload."""
    from vllm_omni.diffusion.distributed import parallel_state

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    parallel_state.init_distributed_environment(RANKS, rank, local_rank=rank, backend="gloo")
    group = parallel_state.get_world_group()
    group.broadcast_object("a first payload" if rank == 0 else None, src=0)
    joined.wait(60)
    if rank == 0:
        os._exit(1)
    try:
        group.broadcast_object(None, src=0)
        told.put((rank, "was given a payload"))
    except RuntimeError as error:
        told.put((rank, str(error).splitlines()[0][-60:]))
    multiprocessing.Event().wait()  # a stage worker that reports an error lives on


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    context = multiprocessing.get_context("spawn")
    joined, told = context.Barrier(RANKS), context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_process, args=(rank, str(Path(folder) / "store"), joined, told)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        ranks[0].join(300)
        until, heard = time.monotonic() + PATIENCE, {}
        while len(heard) < RANKS - 1 and time.monotonic() < until:
            if not told.empty():
                rank, what = told.get()
                heard[rank] = what
                print(f"rank {rank}: {what}")
        for process in ranks:
            process.kill()
            process.join()
    print(f"not told within {PATIENCE:g} s: ranks {sorted(set(range(1, RANKS)) - set(heard))}")
    return 0 < len(heard) < RANKS - 1


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
