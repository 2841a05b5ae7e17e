"""Adapter of vLLM-Omni's KV transfer manager (`OmniKVTransferManager`, vllm-omni 0.28 to 0.30).

Managers are made by the engine's own entry points and moved through its own calls; what is private to it is read, never
written, and only where it offers nothing public. It keeps its own wall clock, so the clock given to `build` goes unused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import torch

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.transfer.engines import vllm_omni_config
from harness.transfer.protocol import (
    Completion,
    Connector,
    Delivery,
    Endpoint,
    EntryPoint,
    KVPayload,
    Outcome,
    ReceiveRole,
    Topology,
    TransferConfig,
)


class VllmOmniTransfer:
    """`transfer/vllm-omni`. Option `ar_config` says where an autoregressive stage's configuration is written, see `vllm_omni_config`."""

    lab = None

    @staticmethod
    def available() -> str | None:
        """Why it cannot run here, or None. Imports neither package: vLLM takes ten seconds."""
        missing = [name for name in ("vllm_omni", "vllm") if find_spec(name) is None]
        return f"{' and '.join(missing)} not installed; see ci/engines/vllm-omni.txt" if missing else None

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
        self._bridges = BridgeFactory()
        self._deployed: list[_Manager] = []

    def deploy(self, topology: Topology | None, connector: Connector, config: TransferConfig) -> _Manager:
        from harness.transfer.engines.vllm_omni_topology import parallel_state

        # The engine asks for its ranks in the constructor, for its groups at first use and for its connector at either:
        # all three are settled here, while the described process is in place.
        with parallel_state(topology), self._bridges.serving(connector) as connector_type:
            native = _make(config, topology or Topology(), connector_type, self._ar_config)
            _ = native.topo_config, native.connector
            if config.own_endpoint is not None:
                native.update_sender_info(_sender_info(config.own_endpoint))
        manager = _Manager(native, config, self._device)
        self._deployed = [*self._open(), manager]
        return manager

    def connector(self, address: str | None = None) -> Connector:
        """The engine's own between stages of one host; whoever asks closes it."""
        from harness.transfer.engines.vllm_omni_connectors import SharedMemory

        return SharedMemory()

    def usage(self) -> Mapping[str, int]:
        return {"managers": len(self._open())}

    def close(self) -> None:
        for manager in self._open():
            manager.close()
        self._deployed = []

    def _open(self) -> list[_Manager]:
        return [manager for manager in self._deployed if not manager.closed]


def _make(config: TransferConfig, topology: Topology, connector_type: str, ar_config: vllm_omni_config.ArConfig) -> Any:
    from vllm_omni.distributed.omni_connectors.kv_transfer_manager import OmniKVTransferManager

    if config.entry is EntryPoint.DIFFUSION:
        return OmniKVTransferManager.from_od_config(vllm_omni_config.diffusion(config, topology, connector_type))
    return OmniKVTransferManager.from_vllm_config(*vllm_omni_config.autoregressive(config, topology, connector_type, ar_config))


class _Manager:
    """One `OmniKVTransferManager`."""

    def __init__(self, native: Any, config: TransferConfig, device: torch.device) -> None:
        self._native, self._device = native, device
        self.layout = config.layout
        self.closed = False

    @property
    def prefetch_enabled(self) -> bool:
        return bool(self._native.config.enable_kv_async_prefetch)

    @property
    def role(self) -> ReceiveRole:
        return ReceiveRole(self._native.topo_config.role.value)

    @property
    def endpoint(self) -> Endpoint | None:
        host, port = self._native._sender_base_host, self._native._sender_base_zmq_port
        return None if host is None and port is None else Endpoint(host, port)

    @property
    def connector_options(self) -> Mapping[str, Any]:
        held = self._native.config.connector_config or {}
        return {name: value for name, value in held.items() if name != "type"}

    def send(self, request_id: str, kv: Sequence[torch.Tensor], block_ids: Sequence[int], seq_len: int) -> None:
        """The engine logs a failed send and returns as after a good one."""
        self._native.handle_finished_requests_kv_transfer(
            {request_id: {"block_ids": list(block_ids), "seq_len": seq_len}},
            list(kv),
            self.layout.block_size,
            str(self.layout.dtype).removeprefix("torch."),
        )

    def start_prefetch(self, request_id: str, endpoint: Endpoint | None, device: torch.device | None = None) -> None:
        self._native.start_prefetch({"request_id": request_id, "kv_sender_info": _sender_info(endpoint)}, device)

    def stop_prefetch(self) -> None:
        self._native.shutdown_prefetch()

    def consume(self, request_id: str) -> Delivery:
        from vllm_omni.distributed.omni_connectors.kv_transfer_manager import KVPrefetchConsumeError

        try:
            return _delivery(*self._native.consume_prefetched_kv(SimpleNamespace(request_id=request_id)))
        except KVPrefetchConsumeError as error:  # the one failure that the engine tells from a miss
            return Delivery(Outcome.FAILED, reason=str(error))

    def receive(self, request_id: str, endpoint: Endpoint | None, timeout: float) -> Delivery:
        """May return up to 0.5 s after `timeout`: the engine looks at its watch between ever longer naps."""
        with self._receive_timeout(timeout):
            return _delivery(*self._native.receive_kv_cache_for_request(request_id, self._device, sender_info=_sender_info(endpoint)))

    def apply(self, delivery: Delivery) -> KVPayload:
        # The two steps that the diffusion runner takes between a consume and the forward pass.
        request = SimpleNamespace(sampling_params=None)
        self._native._record_stream_for_prefetched(delivery.native)
        self._native.apply_kv_cache_to_request(request, delivery.native)
        return _payload(vars(request.past_key_values))

    def abort(self, request_id: str) -> None:
        raise NotImplementedError("vllm-omni has no call that ends one request's transfer")

    def completions(self) -> list[Completion]:
        raise NotImplementedError("vllm-omni does not report how transfers ended")

    def usage(self) -> Mapping[str, int]:
        # The engine counts neither; an executor that it has shut down is None.
        threads = getattr(self._native._prefetch_executor, "_threads", ())
        return {"futures": len(self._native._prefetch_futures), "workers": sum(thread.is_alive() for thread in threads)}

    def close(self) -> None:
        """Ends the worker. The connector belongs to who deployed the manager, and stays open."""
        self._native.shutdown_prefetch()
        self.closed = True

    @contextmanager
    def _receive_timeout(self, seconds: float) -> Iterator[None]:
        """The engine's timeout is one setting of the manager; a prefetch that begins meanwhile gets it too."""
        own = self._native.config.recv_timeout
        self._native.config.recv_timeout = seconds
        try:
            yield
        finally:
            self._native.config.recv_timeout = own


def _sender_info(endpoint: Endpoint | None) -> dict[str, Any] | None:
    return None if endpoint is None else {"host": endpoint.host, "zmq_port": endpoint.port}


def _delivery(data: dict[str, Any] | None, size: int) -> Delivery:
    if data is None:
        return Delivery(Outcome.MISS)
    payload = _payload(data["layer_blocks"])
    rows = {layer.shape[0] for layer in payload.keys + payload.values if layer is not None}
    return Delivery(Outcome.HIT, payload, size, min(rows, default=0), data["metadata"], native=data)


def _payload(layers: Mapping[str, list[torch.Tensor | None]]) -> KVPayload:
    return KVPayload(tuple(layers["key_cache"]), tuple(layers["value_cache"]))
