"""A cache [num_blocks, 2, ...], which FlashInfer uses, is read as [2, num_blocks, ...] when it has two blocks: keys and values mix.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: the payload's keys are the cache's keys, whatever the number of blocks.
Exits 0 while it shows, 1 once it does not.
"""

import os
import sys
from types import SimpleNamespace

import torch
from vllm_omni.distributed.omni_connectors.kv_transfer_manager import OmniKVTransferManager


def manager(sends: bool) -> OmniKVTransferManager:
    """One side of the boundary from stage 0 to stage 1, over the engine's shared memory."""
    config = {
        "connector_config": {"type": "SharedMemoryConnector"},
        "omni_from_stage": "0",
        "omni_to_stage": "1",
        "stage_id": "0" if sends else "1",
        "engine_input_source": ["0"],
        "need_send_cache": sends,
        "need_recv_cache": not sends,
        "recv_timeout": 1.0,
    }
    return OmniKVTransferManager.from_od_config(SimpleNamespace(omni_kv_config=config))


def send(sender: OmniKVTransferManager, request: str, kv: torch.Tensor, block_ids: list[int], seq_len: int) -> list[str]:
    """Send one layer; the requests that the engine says it processed."""
    given = {request: {"block_ids": block_ids, "seq_len": seq_len}}
    return sender.handle_finished_requests_kv_transfer(given, [kv], block_size=4, cache_dtype="float32")


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    sender, receiver = manager(True), manager(False)
    wrong = []
    for blocks in (2, 3):
        kv = torch.zeros(blocks, 2, 4, 4, 8)
        kv[:, 1] = 1.0  # keys are zeros, values are ones
        request = f"finding-{os.getpid()}-{blocks}"
        send(sender, request, kv, block_ids=list(range(blocks)), seq_len=4 * blocks)
        data, _ = receiver.receive_kv_cache_for_request(request)
        keys = data["layer_blocks"]["key_cache"][0]
        wrong.append(bool(keys.any()))
        print(f"{blocks} blocks: {int(keys[:, 0, 0].sum())} of {len(keys)} rows of the keys hold values")
    return any(wrong)


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
