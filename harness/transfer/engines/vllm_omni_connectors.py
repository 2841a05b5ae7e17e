"""Connectors across the border to vLLM-Omni: one of ours under its manager, one of its own behind our protocol.

Imported only where vLLM-Omni is installed, from inside the adapter's functions.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vllm_omni.distributed.omni_connectors.connectors.base import OmniConnectorBase
from vllm_omni.distributed.omni_connectors.factory import OmniConnectorFactory
from vllm_omni.distributed.omni_connectors.utils.config import ConnectorSpec

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer, Connector, Endpoint

_serial = itertools.count()


class Bridge(OmniConnectorBase):
    """One of our connectors, as the engine's manager sees a connector."""

    def __init__(self, ours: Connector) -> None:
        self._ours = ours
        self._sender: Endpoint | None = None

    def put(self, from_stage: str, to_stage: str, put_key: str, data: bytes) -> tuple[bool, int, Any]:
        return self._ours.put(from_stage, to_stage, put_key, data)

    def get(self, from_stage: str, to_stage: str, get_key: str, metadata: dict[str, Any] | None = None) -> tuple[bytearray, int] | None:
        sender = self._sender if metadata is None else Endpoint(metadata["source_host"], metadata["source_port"])
        found = self._ours.get(from_stage, to_stage, get_key, sender)
        if found is None:
            return None
        data, size = found
        # The engine keeps views into what it is given, so it gets memory that nobody else writes to.
        own = bytearray(byte_view(data))
        # Its manager never cleans up after a get: a get through its own connectors takes the payload away. Ours keep it until told.
        self._ours.done(from_stage, to_stage, get_key, sender)
        return own, size

    def update_sender_info(self, host: str, port: int) -> None:
        """The manager's own sender: it names none in a get, and leaves this one to its connector."""
        self._sender = Endpoint(host, port)

    def cleanup(self, request_id: str) -> None:
        """The manager never asks for it."""

    def health(self) -> dict[str, Any]:
        return {"status": "healthy"}

    def close(self) -> None:
        """Whoever made our connector closes it; the engine also closes in `__del__`, while others still use it."""


class BridgeFactory:
    """Has the engine's connector factory make a bridge to the connector that is being served."""

    def __init__(self) -> None:
        self._name = f"AssayBridge{next(_serial)}"  # a name can be registered once, for the life of the process
        self._served: Connector | None = None
        OmniConnectorFactory.register_connector(self._name, self._bridge)

    @contextmanager
    def serving(self, connector: Connector) -> Iterator[str]:
        """Inside the block a connector of the yielded type is a bridge to `connector`."""
        self._served = connector
        try:
            yield self._name
        finally:
            self._served = None

    def _bridge(self, options: dict[str, Any]) -> Bridge:
        if self._served is None:
            raise RuntimeError("the engine made its connector outside deploy()")
        return Bridge(self._served)


class SharedMemory:
    """The engine's `SharedMemoryConnector`, its default between stages of one host. A get takes the payload away."""

    endpoint: Endpoint | None = None
    address = ""
    carries_device_memory = False

    def __init__(self) -> None:
        self._native = OmniConnectorFactory.create_connector(ConnectorSpec("SharedMemoryConnector"))
        # Its segments are named by the key alone, for the whole host.
        self._prefix = f"assay-{os.getpid()}-{next(_serial)}"
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer, readers: int = 1) -> tuple[bool, int, Any]:
        name = self._segment(from_stage, to_stage, key)
        with self._lock:
            # Before the put: a receiver may take the payload away before this thread goes on.
            self._held[name] = len(byte_view(data))
        ok, size, handle = self._native.put(from_stage, to_stage, name, data)
        if not ok:
            with self._lock:
                self._held.pop(name, None)
        return ok, size, handle

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        # The engine would take an endpoint for a segment's description; on one host the name says it all.
        name = self._segment(from_stage, to_stage, key)
        found = self._native.get(from_stage, to_stage, name)
        if found is not None:
            with self._lock:
                self._held.pop(name, None)
        return found

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
        """The get has taken the payload away."""

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        name = self._segment(from_stage, to_stage, key)
        self._native.cleanup(name)
        with self._lock:
            self._held.pop(name, None)

    def holds(self, from_stage: str, to_stage: str, key: str) -> bool:
        with self._lock:
            return self._segment(from_stage, to_stage, key) in self._held

    def usage(self) -> Mapping[str, int]:
        with self._lock:
            return {"segments": len(self._held), "bytes": sum(self._held.values())}

    def close(self) -> None:
        self._native.close()
        with self._lock:
            self._held.clear()

    def _segment(self, from_stage: str, to_stage: str, key: str) -> str:
        return f"{self._prefix}-{from_stage}-{to_stage}-{key}"
