"""Guidance branches that do not come are waited for one after the other, each for the whole receive timeout.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: a request waits for its payloads together, for recv_timeout.
Exits 0 while it shows, 1 once it does not.
"""

import sys
import time
from types import SimpleNamespace

from vllm_omni.distributed.omni_connectors.kv_transfer_manager import OmniKVTransferManager
from vllm_omni.model_executor.stage_input_processors.bagel import collect_cfg_kv_caches


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
    branches = SimpleNamespace(cfg_kv_request_ids={"cfg_text": "finding-text", "cfg_img": "finding-img"})
    request = SimpleNamespace(request_id="finding-main", sampling_params=branches, kv_sender_info={"host": "127.0.0.1", "zmq_port": 50051})
    started = time.monotonic()
    receiver.receive_multi_kv_cache(request, collect_cfg_kv_caches)
    waited = time.monotonic() - started
    print(f"recv_timeout 1.0 s, three payloads that nobody sent: returned after {waited:.1f} s")
    return waited > 3.0


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
