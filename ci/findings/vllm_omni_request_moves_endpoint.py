"""A request's own sender endpoint becomes the manager's: later requests that name none go to it.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: what one request says of its sender holds for that request (as it does in
`receive_kv_cache_for_request(sender_info=)`).
Exits 0 while it shows, 1 once it does not.
"""

import sys
from types import SimpleNamespace

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


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    receiver = manager(False)
    receiver.update_sender_info({"host": "10.0.0.1", "zmq_port": 50051})
    request = SimpleNamespace(request_id="finding", sampling_params=None, kv_sender_info={"host": "10.0.0.2", "zmq_port": 50052})
    receiver.receive_multi_kv_cache(request)
    print(f"the manager's sender was 10.0.0.1:50051, and is {receiver._sender_base_host}:{receiver._sender_base_zmq_port}")
    return receiver._sender_base_host == "10.0.0.2"


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
