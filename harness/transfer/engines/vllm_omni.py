"""Adapter of vLLM-Omni's KV transfer manager (`OmniKVTransferManager`, vllm-omni 0.28 to 0.30).

Managers are made by the engine's own entry points. It keeps its own wall clock, so the clock given to `build` goes unused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.transfer.engines import vllm_omni_config
from harness.transfer.engines.vllm_omni_manager import VllmOmniManager, sender_info
from harness.transfer.engines.vllm_omni_shm import SharedMemory, unavailable
from harness.transfer.engines.vllm_omni_topology import Groups, described, is_whole_world
from harness.transfer.protocol import Connector, EntryPoint, KVOrder, Topology, TransferConfig


class VllmOmniTransfer:
    """`transfer/vllm-omni`. Option `ar_config` says where an autoregressive stage's configuration is written, see `vllm_omni_config`."""

    lab = None
    preload = ("vllm_omni.distributed.omni_connectors.kv_transfer_manager",)

    @staticmethod
    def available() -> str | None:
        return unavailable()

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> VllmOmniTransfer:
        """ValueError for an option, or a value of one, that it does not know."""
        options = dict(config.options)
        ar_config = vllm_omni_config.ArConfig.parse(options.pop("ar_config", "kv_transfer"))
        if options:
            raise ValueError(f"transfer/vllm-omni: unknown options {sorted(options)}; it has ar_config")
        # vLLM reads it while it is imported. INFO is several lines a transfer; warnings and errors still show.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        return VllmOmniTransfer(ar_config, torch.device(config.device))

    def __init__(self, ar_config: vllm_omni_config.ArConfig, device: torch.device) -> None:
        from harness.transfer.engines.vllm_omni_connectors import BridgeFactory

        self._ar_config, self._device = ar_config, device
        self._bridges, self._groups = BridgeFactory(), Groups()
        self._deployed: list[VllmOmniManager] = []

    def deploy(self, topology: Topology | None, connector: Connector, config: TransferConfig) -> VllmOmniManager:
        """A receiver of a topology that torch.distributed spans joins the engine's own groups: every rank deploys it together."""
        if config.layout.order is KVOrder.HND:
            raise NotImplementedError("vllm-omni: a layer [2, blocks, ...], or a pair, is read as tokens before heads")
        # The engine asks for its ranks in the constructor, for its groups at first use and for its connector at either:
        # all three are settled here, while the described process is in place.
        with self._place(topology, config), self._bridges.serving(connector) as connector_type:
            native = _make(config, topology or Topology(), connector_type, self._ar_config)
            _ = native.topo_config, native.connector
            if config.own_endpoint is not None:
                native.update_sender_info(sender_info(config.own_endpoint))
        manager = VllmOmniManager(native, config, self._device)
        self._deployed = [*self._open(), manager]
        return manager

    def connector(self, address: str | None = None) -> Connector:
        """The engine's own between stages of one host; whoever asks closes it."""
        return SharedMemory(address)

    def usage(self) -> Mapping[str, int]:
        return {"managers": len(self._open())}

    def close(self) -> None:
        for manager in self._open():
            manager.close()
        self._deployed = []
        self._groups.leave()

    def _place(self, topology: Topology | None, config: TransferConfig) -> AbstractContextManager[None]:
        """Where the engine finds its ranks and groups; None leaves its parallel state as it is, not initialised."""
        if topology is None:
            return nullcontext()
        if config.receives and is_whole_world(topology):
            self._groups.join(topology)
            return nullcontext()
        return described(topology)

    def _open(self) -> list[VllmOmniManager]:
        return [manager for manager in self._deployed if not manager.closed]


def _make(config: TransferConfig, topology: Topology, connector_type: str, ar_config: vllm_omni_config.ArConfig) -> Any:
    from vllm_omni.distributed.omni_connectors.kv_transfer_manager import OmniKVTransferManager

    if config.entry is EntryPoint.DIFFUSION:
        return OmniKVTransferManager.from_od_config(vllm_omni_config.diffusion(config, topology, connector_type))
    return OmniKVTransferManager.from_vllm_config(*vllm_omni_config.autoregressive(config, topology, connector_type, ar_config))
