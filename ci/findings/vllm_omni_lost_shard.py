"""A receive that joins two ranks' shards and times out for one of them throws the other away, which cannot be fetched again.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: a shard that came stays fetchable, so that a later receive of the same request is whole.
Exits 0 while it shows, 1 once it does not.
"""

import os
import sys
from types import SimpleNamespace

import torch
from vllm_omni.distributed.omni_connectors.kv_transfer_manager import OmniKVTransferManager


def rank_of(sends: bool, source_tp: int, target_tp: int, rank: int) -> OmniKVTransferManager:
    """One rank of a stage. Without vLLM's groups the engine takes its rank from LOCAL_RANK."""
    os.environ["LOCAL_RANK"] = str(rank)
    config = {
        "connector_config": {"type": "SharedMemoryConnector"},
        "omni_from_stage": "0",
        "omni_to_stage": "1",
        "stage_id": "0" if sends else "1",
        "engine_input_source": ["0"],
        "need_send_cache": sends,
        "need_recv_cache": not sends,
        "recv_timeout": 1.0,
        "rank_mapping": {"from_tp": source_tp, "to_tp": target_tp},
    }
    return OmniKVTransferManager.from_od_config(SimpleNamespace(omni_kv_config=config))


def send(sender: OmniKVTransferManager, request: str, kv: torch.Tensor, block_ids: list[int], seq_len: int) -> list[str]:
    """Send one layer; the requests that the engine says it processed."""
    given = {request: {"block_ids": block_ids, "seq_len": seq_len}}
    return sender.handle_finished_requests_kv_transfer(given, [kv], block_size=4, cache_dtype="float32")


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    kv = torch.randn(2, 3, 4, 2, 8)
    request = f"finding-{os.getpid()}"
    early, late, receiver = rank_of(True, 2, 1, 0), rank_of(True, 2, 1, 1), rank_of(False, 2, 1, 0)
    send(early, request, kv, [0, 1, 2], 12)
    first, _ = receiver.receive_kv_cache_for_request(request)
    send(late, request, kv, [0, 1, 2], 12)
    second, _ = receiver.receive_kv_cache_for_request(request)
    print(f"with one shard sent: {'nothing' if first is None else 'a payload'}; with both: {'nothing' if second is None else 'a payload'}")
    return second is None


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
