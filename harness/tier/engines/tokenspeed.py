"""Adapter of TokenSpeed's `Engine` with the arguments of the seeds' check. Written against tokenspeed 0.1.1's sources, and never run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from harness.core.clock import Clock
from harness.core.names import unknown
from harness.core.spec import EngineConfig
from harness.core.verdict import Unavailable
from harness.tier.engines.batched import BatchedServer

ENGINE = "tier/tokenspeed"
DEFAULTS = {"model": "openai/gpt-oss-20b", "host": "on", "host_gb": "8"}
LONGEST = 8192
POOL_GB = 0.165 * 80
"""The seeds' share of the memory of their card."""
SMALL = "TOKENSPEED_CI_SMALL_KV_SIZE"


class TokenSpeed:
    """Builds servers of TokenSpeed."""

    @staticmethod
    def available() -> str | None:
        """The seeds' skips."""
        if SMALL in os.environ:
            return f"{SMALL} is set: its pool is not the one that the check is sized for"
        missing = [name for name in ("tokenspeed", "tokenspeed_scheduler") if find_spec(name) is None]
        if missing:
            return f"{' and '.join(missing)} not importable"
        # Absent from 0.1.42 on, where flat is the only build.
        if not getattr(import_module("tokenspeed_scheduler"), "FLAT_KVCACHE", True):
            return "this tokenspeed_scheduler was built without the flat KV cache"
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> BatchedServer:
        """ValueError for a wrong option; Unavailable without the weights."""
        import torch

        total = torch.cuda.get_device_properties(0).total_memory
        given = arguments(config.options, total)
        from tokenspeed.runtime.entrypoints.engine import Engine

        try:
            native = Engine(**given)
        except OSError as missing:
            raise Unavailable(f"{given['model']}: {missing}") from missing
        capacity = native.get_server_info()["max_total_num_tokens"]
        # What the host store holds in tokens the engine does not say.
        host = None if given.get("enable_kvstore") else 0
        return BatchedServer(ENGINE, native, page=None, capacity=capacity, host=host, footprint=2, longest=LONGEST)


def arguments(options: Mapping[str, str], card_bytes: int) -> dict[str, Any]:
    """Of `Engine`, on a card of so many bytes. ValueError that names the option."""
    if set(options) - set(DEFAULTS):
        raise ValueError(f"{ENGINE}: {unknown('option', min(set(options) - set(DEFAULTS)), DEFAULTS)}")
    chosen = DEFAULTS | dict(options)
    if chosen["host"] not in ("on", "off"):
        raise ValueError(f"{ENGINE}: option host: {unknown('value', chosen['host'], ('on', 'off'))}")
    if not chosen["host_gb"].isdecimal() or int(chosen["host_gb"]) < 1:
        raise ValueError(f"{ENGINE}: option host_gb = {chosen['host_gb']!r}: write a number, 1 or more")
    host = {"enable_kvstore": True, "kvstore_size": int(chosen["host_gb"])}
    return (host if chosen["host"] == "on" else {"disable_kvstore": True}) | {
        "model": chosen["model"],
        "dtype": "bfloat16",
        "seed": 42,
        "max_model_len": LONGEST,
        "max_num_seqs": 2,
        "gpu_memory_utilization": round(POOL_GB * 1e9 / card_bytes, 4),
        "moe_backend": "flashinfer_mxfp4",
        "disable_prefill_graph": True,
    }
