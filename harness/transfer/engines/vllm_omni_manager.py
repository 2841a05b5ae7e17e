"""One `OmniKVTransferManager` of vLLM-Omni behind the protocol.

It is moved through its own calls; what is private to it is read, never written, and only where it offers nothing public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from harness.transfer.engines import vllm_omni_requests as requests
from harness.transfer.protocol import (
    Completion,
    Delivery,
    Endpoint,
    KVPayload,
    LayerKV,
    Outcome,
    Pages,
    ReceiveRole,
    TransferConfig,
)


class VllmOmniManager:
    """What `transfer/vllm-omni` deploys."""

    def __init__(self, native: Any, config: TransferConfig, device: torch.device) -> None:
        self._native, self._config, self._device = native, config, device
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

    @property
    def listens_at(self) -> Endpoint | None:
        """As the engine computes it for connectors that listen: from a configured base, the stage and the rank."""
        from vllm_omni.distributed.omni_connectors.utils.kv_utils import kv_zmq_port

        own = self._config.own_endpoint
        if own is None or not self._config.sends:
            return None
        stage = int(self._config.from_stage) if self._config.from_stage.isdecimal() else 0
        return Endpoint(own.host, kv_zmq_port(own.port - kv_zmq_port(0, stage), stage, self._native.tp_topology.local_rank))

    def send(
        self,
        request_id: str,
        kv: Sequence[LayerKV],
        block_ids: Sequence[int],
        seq_len: int,
        *,
        readers: int = 1,
        lease: float | None = None,
    ) -> None:
        """The engine logs a failed send and returns as after a good one."""
        if readers != 1 or lease is not None:
            raise NotImplementedError("vllm-omni: a payload has one reader, and is held until it is read")
        self._native.handle_finished_requests_kv_transfer(
            {request_id: {"block_ids": list(block_ids), "seq_len": seq_len}},
            list(kv),
            self.layout.block_size,
            str(self.layout.dtype).removeprefix("torch."),
        )

    def start_prefetch(self, request_id: str, endpoint: Endpoint | None, device: torch.device | None = None, skip_tokens: int = 0) -> None:
        _check_whole(skip_tokens)
        self._native.start_prefetch({"request_id": request_id, "kv_sender_info": sender_info(endpoint)}, device)

    def stop_prefetch(self) -> None:
        self._native.shutdown_prefetch()

    def consume(self, request_id: str) -> Delivery:
        from vllm_omni.distributed.omni_connectors.kv_transfer_manager import KVPrefetchConsumeError

        try:
            return requests.delivery(*self._native.consume_prefetched_kv(SimpleNamespace(request_id=request_id)))
        except KVPrefetchConsumeError as error:  # the one failure that the engine tells from a miss
            return Delivery(Outcome.FAILED, reason=str(error))

    def receive(
        self, request_id: str, endpoint: Endpoint | None, timeout: float, *, into: Pages | None = None, skip_tokens: int = 0
    ) -> Delivery:
        """May return up to 0.5 s after `timeout`: the engine looks at its watch between ever longer naps."""
        _check_whole(skip_tokens)
        if into is not None:
            raise NotImplementedError("vllm-omni: a payload is given in tensors of its own")
        with self._receive_timeout(timeout):
            found = self._native.receive_kv_cache_for_request(request_id, self._device, sender_info=sender_info(endpoint))
        return requests.delivery(*found)

    def receive_branches(self, branches: Mapping[str, str], endpoint: Endpoint | None, timeout: float) -> Mapping[str, Delivery]:
        """The first branch is the request, the others are its companions, collected as the engine's own model (Bagel) does it.

        The engine makes `endpoint` the manager's own, and gives each payload the whole `timeout`.
        """
        from vllm_omni.model_executor.stage_input_processors.bagel import collect_cfg_kv_caches

        if not branches:
            return {}
        (main, main_id), *companions = branches.items()
        asked = requests.request(main_id, sender_info(endpoint), dict(companions))
        with self._receive_timeout(timeout), self._sizes() as sizes:
            self._native.receive_multi_kv_cache(asked, collect_cfg_kv_caches, self._device)
        roles = {main: None, **{name: name for name, _ in companions}}
        return {name: requests.set_on(asked, role, sizes.get(branches[name], 0)) for name, role in roles.items()}

    def distribute(self, request_id: str, deliveries: Sequence[Delivery] = ()) -> Delivery:
        """The engine tells followers neither why there is nothing nor how many bytes were carried: a miss; the bytes of the tensors."""
        own = deliveries[0] if deliveries else Delivery(Outcome.MISS)
        asked = requests.request(request_id)
        received = own.outcome is Outcome.HIT
        if received:
            self._native.apply_kv_cache_to_request(asked, own.native)
            requests.set_branches(asked, deliveries[1:])
        given = self._native.distribute_kv_cache(asked, self._device, received=received)
        if self.role is not ReceiveRole.FOLLOWER:
            return own
        if given is None:
            return Delivery(Outcome.MISS)
        self._native._apply_request_kv_payload(asked, given, self._device)
        return requests.set_on(asked, requests.active_role(asked, self._native.topo_config.cfg_rank))

    def apply(self, delivery: Delivery) -> KVPayload:
        # The two steps that the diffusion runner takes between a consume and the forward pass.
        request = SimpleNamespace(sampling_params=None)
        self._native._record_stream_for_prefetched(delivery.native)
        self._native.apply_kv_cache_to_request(request, delivery.native)
        return requests.payload(vars(request.past_key_values))

    def abort(self, request_id: str) -> None:
        raise NotImplementedError("vllm-omni has no call that ends one request's transfer")

    def reject(self, request_id: str, endpoint: Endpoint | None = None) -> None:
        raise NotImplementedError("vllm-omni has no call that tells a sender")

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

    @contextmanager
    def _sizes(self) -> Iterator[dict[str, int]]:
        """Request id to bytes of what is received inside the block: the engine's calls for several payloads drop the sizes."""
        sizes: dict[str, int] = {}
        receive = self._native.receive_kv_cache_for_request

        def watched(request_id: str, *args: Any, **kwargs: Any) -> tuple[Any, int]:
            data, size = receive(request_id, *args, **kwargs)
            if data is not None:
                sizes[request_id] = size
            return data, size

        with patch.object(self._native, "receive_kv_cache_for_request", watched):
            yield sizes


def sender_info(endpoint: Endpoint | None) -> dict[str, Any] | None:
    """An endpoint as the engine's orchestrator writes it."""
    return None if endpoint is None else {"host": endpoint.host, "zmq_port": endpoint.port}


def _check_whole(skip_tokens: int) -> None:
    if skip_tokens:
        raise NotImplementedError("vllm-omni: a request's KV cache is fetched whole")
