"""A receiver takes whatever lies under a key: another request's payload, and tensors of another dtype than their metadata names.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: a payload that does not say what it was asked for is a failure, not a hit.
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
    asked, other = f"finding-{os.getpid()}-a", f"finding-{os.getpid()}-b"
    send(sender, other, torch.randn(2, 3, 4, 4, 8).to(torch.bfloat16), block_ids=[0, 1, 2], seq_len=12)
    payload, _ = receiver.connector.get("0", "1", f"omni_0_to_1_kv_cache_{other}")
    sender.connector.put("0", "1", f"omni_0_to_1_kv_cache_{asked}", payload)
    data, _ = receiver.receive_kv_cache_for_request(asked)
    if data is None:
        print("nothing was delivered")
        return False
    tensor = data["layer_blocks"]["key_cache"][0]
    print(f"asked for {asked}, delivered {data['request_id']}; {tensor.dtype} under metadata that says {data['metadata']['dtype']}")
    return True


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
