"""A connector of ours under vLLM-Omni's manager.

Imported only where vLLM-Omni is installed, from inside the adapter's functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from vllm_omni.distributed.omni_connectors.connectors.base import OmniConnectorBase
from vllm_omni.distributed.omni_connectors.factory import OmniConnectorFactory

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Connector, Endpoint

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
        # One that cannot let go has still delivered, as where the engine's shared memory cannot unlink what it read.
        with suppress(Exception):
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
