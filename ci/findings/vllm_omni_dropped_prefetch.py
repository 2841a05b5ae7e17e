"""A prefetch that another request's start drops takes its payload with it: the request's own receive finds nothing.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: a request whose prefetch was dropped is still received in the foreground.
Exits 0 while it shows, 1 once it does not.
"""

import os
import sys
from concurrent.futures import wait
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
        "enable_kv_async_prefetch": True,
    }
    return OmniKVTransferManager.from_od_config(SimpleNamespace(omni_kv_config=config))


def send(sender: OmniKVTransferManager, request: str, kv: torch.Tensor, block_ids: list[int], seq_len: int) -> list[str]:
    """Send one layer; the requests that the engine says it processed."""
    given = {request: {"block_ids": block_ids, "seq_len": seq_len}}
    return sender.handle_finished_requests_kv_transfer(given, [kv], block_size=4, cache_dtype="float32")


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    sender, receiver = manager(True), manager(False)
    first, second = f"finding-{os.getpid()}-1", f"finding-{os.getpid()}-2"
    for request in (first, second):
        send(sender, request, torch.randn(2, 3, 4, 4, 8), [0, 1, 2], 12)
    for request in (first, second):
        receiver.start_prefetch({"request_id": request, "kv_sender_info": {"host": "127.0.0.1", "zmq_port": 50051}})
        wait(list(receiver._prefetch_futures.values()), timeout=10)
    consumed, _ = receiver.consume_prefetched_kv(SimpleNamespace(request_id=first))
    received, _ = receiver.receive_kv_cache_for_request(first)
    receiver.shutdown_prefetch()
    print(f"first request: consumed {consumed}, then received {received}")
    return consumed is None and received is None


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
