"""`from_vllm_config` honours enable_kv_async_prefetch where it stands in the model's omni_kv_config.

Shows in vllm-omni 0.28.0, 0.30.0. Expected: off on the autoregressive entry point, as it is where the configuration stands in
kv_transfer_config: its runner never starts a prefetch.
Exits 0 while it shows, 1 once it does not.
"""

import sys
from types import SimpleNamespace

from vllm_omni.distributed.omni_connectors.kv_transfer_manager import OmniKVTransferManager


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    config = {
        "connector_config": {"type": "SharedMemoryConnector"},
        "stage_id": 1,
        "need_recv_cache": True,
        "enable_kv_async_prefetch": True,
    }
    manager = OmniKVTransferManager.from_vllm_config(
        SimpleNamespace(kv_transfer_config=None), SimpleNamespace(omni_kv_config=config, cfg_kv_collect_func=None)
    )
    enabled = manager.config.enable_kv_async_prefetch
    manager.shutdown_prefetch()
    print(f"prefetch enabled on the autoregressive entry point: {enabled}")
    return bool(enabled)


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
