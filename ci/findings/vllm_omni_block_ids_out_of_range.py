"""Block ids outside the cache are dropped without a word: the rows behind them move up, and the payload claims to be whole.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: the send is refused, or fails; no receiver is given rows of other tokens.
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
    kv = torch.arange(2 * 5 * 4, dtype=torch.float32).reshape(2, 5, 4, 1, 1)
    request = f"finding-{os.getpid()}"
    sender, receiver = manager(True), manager(False)
    said = send(sender, request, kv, block_ids=[0, 99, 2], seq_len=12)
    data, _ = receiver.receive_kv_cache_for_request(request)
    if data is None:
        print(f"send said {said}; nothing was delivered")
        return False
    keys = data["layer_blocks"]["key_cache"][0].flatten().tolist()
    print(f"send said {said}; block table {data['block_ids']} of a cache of 5 blocks, seq_len {data['metadata']['seq_len']}")
    print(f"delivered {len(keys)} rows of the 12: {keys}")
    return True


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
