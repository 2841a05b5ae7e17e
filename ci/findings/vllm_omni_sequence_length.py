"""A negative sequence length is sliced from the end, and one beyond any memory goes into the metadata as it is.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: both are refused where they are sent.
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
    delivered = 0
    for seq_len in (-1, 10**12):
        request = f"finding-{os.getpid()}-{seq_len}"
        said = send(sender, request, torch.randn(2, 5, 4, 4, 8), block_ids=[0, 1, 2], seq_len=seq_len)
        data, _ = receiver.receive_kv_cache_for_request(request)
        rows = data and len(data["layer_blocks"]["key_cache"][0])
        print(f"seq_len {seq_len}: send said {said}; delivered {rows} rows with metadata {data and data['metadata']}")
        delivered += data is not None
    return delivered > 0


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
