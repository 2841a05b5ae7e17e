"""Adapter of SGLang's `Engine` with its hierarchical cache (HiCache) as host tier. Written against its documentation, and never run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.core.clock import Clock
from harness.core.names import unknown
from harness.core.spec import EngineConfig
from harness.tier.checkpoint import cached
from harness.tier.engines.batched import BatchedServer

ENGINE = "tier/sglang"
DEFAULTS = {"model": "llama", "host": "on", "page": "16", "device_pages": "2200", "host_pages": "16384", "max_running": "2"}
SIZES = {"llama": "8b", "gptoss": "20b"}
LONGEST = 8192


class Sglang:
    """Builds servers of SGLang."""

    @staticmethod
    def available() -> str | None:
        return None if find_spec("sglang") else "sglang is not importable"

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> BatchedServer:
        """ValueError for a wrong option."""
        given = arguments(config.options)
        model = given["model_path"]
        from sglang import Engine

        directory = cached(model, SIZES[model]) if model in SIZES else Path(model)
        native = Engine(**given | {"model_path": str(directory)})
        page = given["page_size"]
        host = int(given.get("hicache_ratio", 0) * given["max_total_tokens"])
        return BatchedServer(ENGINE, native, page=page, capacity=given["max_total_tokens"], host=host, footprint=1, longest=LONGEST)


def arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Of `Engine`. ValueError that names the option."""
    if set(options) - set(DEFAULTS):
        raise ValueError(f"{ENGINE}: {unknown('option', min(set(options) - set(DEFAULTS)), DEFAULTS)}")
    chosen = DEFAULTS | dict(options)
    if chosen["host"] not in ("on", "off"):
        raise ValueError(f"{ENGINE}: option host: {unknown('value', chosen['host'], ('on', 'off'))}")
    numbers = {}
    for name in ("page", "device_pages", "host_pages", "max_running"):
        if not chosen[name].isdecimal() or int(chosen[name]) < 1:
            raise ValueError(f"{ENGINE}: option {name} = {chosen[name]!r}: write a number, 1 or more")
        numbers[name] = int(chosen[name])
    host = {"enable_hierarchical_cache": True, "hicache_ratio": numbers["host_pages"] / numbers["device_pages"]}
    return (host if chosen["host"] == "on" else {}) | {
        "model_path": chosen["model"],
        "skip_tokenizer_init": True,
        "page_size": numbers["page"],
        "max_total_tokens": numbers["page"] * numbers["device_pages"],
        "max_running_requests": numbers["max_running"],
        "context_length": LONGEST,
        "random_seed": 42,
    }
