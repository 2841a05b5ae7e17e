"""With more ranks than KV heads the copies are joined as if they were heads, and one rank cannot send to eight.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: TP 8 to 1 of a model with 4 KV heads gives 4 heads, each once; TP 1 to 8 gives every rank the
head that it holds.
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
    heads = torch.randn(2, 3, 4, 4, 8)
    request = f"finding-{os.getpid()}"
    senders = [rank_of(True, 8, 1, rank) for rank in range(8)]  # kept: one that is collected takes its payloads with it
    for rank, sender in enumerate(senders):
        head = rank * 4 // 8
        send(sender, f"{request}-8to1", heads[:, :, :, head : head + 1].contiguous(), [0, 1, 2], 12)
    data, _ = rank_of(False, 8, 1, 0).receive_kv_cache_for_request(f"{request}-8to1")
    joined = data and data["layer_blocks"]["key_cache"][0].shape[1]
    print(f"TP 8 to 1 of 4 KV heads: delivered {joined} heads")

    one = rank_of(True, 1, 8, 0)
    send(one, f"{request}-1to8", heads, [0, 1, 2], 12)
    split, _ = rank_of(False, 1, 8, 0).receive_kv_cache_for_request(f"{request}-1to8")
    print(f"TP 1 to 8 of 4 KV heads: rank 0 was given {'nothing' if split is None else 'its head'}")
    return joined != 4 or split is None


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
