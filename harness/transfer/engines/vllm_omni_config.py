"""How a `TransferConfig` is written in vLLM-Omni's own configuration. Imports vLLM only to build a configuration of it."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

from harness.transfer.protocol import Topology, TransferConfig

PREFETCH_KEY = "enable_kv_async_prefetch"


class ArConfig(str, Enum):
    """Where an autoregressive stage's KV configuration is written; the entry point reads both places, the second first."""

    KV_TRANSFER = "kv_transfer"
    """In the vLLM configuration (`kv_transfer_config`): a connector and nothing else, so such a stage neither sends nor receives."""
    OMNI_KV = "omni_kv"
    """In the model configuration (`omni_kv_config`), as for a diffusion stage. The prefetch opt-in is honoured there."""

    @classmethod
    def parse(cls, text: str) -> ArConfig:
        try:
            return cls(text)
        except ValueError:
            raise ValueError(f"transfer/vllm-omni: ar_config={text}; use {' or '.join(cls)}") from None


def diffusion(config: TransferConfig, topology: Topology, connector_type: str) -> Any:
    """What `from_od_config` reads of a diffusion stage's configuration."""
    collector = (lambda *_: {}) if config.companion else None
    return SimpleNamespace(omni_kv_config=omni_kv(config, topology, connector_type), cfg_kv_collect_func=collector)


def autoregressive(config: TransferConfig, topology: Topology, connector_type: str, where: ArConfig) -> tuple[Any, Any]:
    """(vLLM configuration, model configuration), as `from_vllm_config` takes them."""
    if where is ArConfig.OMNI_KV:
        return SimpleNamespace(kv_transfer_config=None), diffusion(config, topology, connector_type)
    if config.sends:
        raise ValueError("transfer/vllm-omni: kv_transfer_config cannot say that a stage sends; use ar_config=omni_kv")
    from vllm.config import KVTransferConfig

    connector = {"type": connector_type, **config.connector_options, **_opt_in(config)}
    transfer = KVTransferConfig(kv_connector_extra_config={"omni_connector_config": connector})
    return SimpleNamespace(kv_transfer_config=transfer), SimpleNamespace(omni_kv_config=None)


def omni_kv(config: TransferConfig, topology: Topology, connector_type: str) -> dict[str, Any]:
    """The table `omni_kv_config` of one stage; `stage_id` is the stage on this side of the boundary."""
    return {
        "connector_config": {"type": connector_type, **config.connector_options},
        "omni_from_stage": config.from_stage,
        "omni_to_stage": config.to_stage,
        "stage_id": config.to_stage if config.receives else config.from_stage,
        "engine_input_source": [config.from_stage],
        "need_send_cache": config.sends,
        "need_recv_cache": config.receives,
        "recv_timeout": config.receive_timeout,
        "kv_prefetch_min_free_mem_ratio": config.min_free_device,
        "rank_mapping": {"from_tp": topology.source_tp, "to_tp": topology.target_tp},
        **_opt_in(config),
    }


def _opt_in(config: TransferConfig) -> dict[str, bool | None]:
    return {} if config.async_prefetch == "absent" else {PREFETCH_KEY: config.async_prefetch}
