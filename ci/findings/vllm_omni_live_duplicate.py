"""A second send under a request id that is still live takes the first one's place without a word.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: the second send is refused, and the first payload stays.
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
    request = f"finding-{os.getpid()}"
    for value in (1.0, 2.0):
        said = send(sender, request, torch.full((2, 3, 4, 4, 8), value), block_ids=[0, 1, 2], seq_len=12)
        print(f"send of {value}s said {said}")
    data, _ = receiver.receive_kv_cache_for_request(request)
    got = data["layer_blocks"]["key_cache"][0][0, 0, 0].item()
    print(f"the receiver was given {got}s")
    return got == 2.0


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
