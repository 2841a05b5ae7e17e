"""`connector/vllm-omni-shm`: vLLM-Omni's `SharedMemoryConnector`, its default between stages of one host (vllm-omni 0.28 to 0.30)."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.transfer.buffers import byte_view
from harness.transfer.engines.connectors import Connectors
from harness.transfer.protocol import Buffer, Connector, Endpoint

SHM = Path("/dev/shm")
"""Where the engine's segments and lock files lie."""

_serial = itertools.count()


def unavailable() -> str | None:
    """Why vLLM-Omni cannot run here, or None. Imports neither package: vLLM takes ten seconds."""
    missing = [name for name in ("vllm_omni", "vllm") if find_spec(name) is None]
    return f"{' and '.join(missing)} not installed; see ci/engines/vllm-omni.txt" if missing else None


class VllmOmniSharedMemory(Connectors["SharedMemory"]):
    """Makes connectors, each under a prefix of its own: the engine names its segments by key alone, for the whole host."""

    lab = None
    preload = ("vllm_omni.distributed.omni_connectors.factory",)

    @staticmethod
    def available() -> str | None:
        return unavailable()

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> VllmOmniSharedMemory:
        """ValueError for any option. The clock is not needed: no call waits."""
        if config.options:
            raise ValueError(f"connector/vllm-omni-shm: unknown options {sorted(config.options)}; it has none")
        # vLLM reads it while it is imported; that takes longer than any call of a connector may, so it is done here.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        import vllm_omni.distributed.omni_connectors.factory  # noqa: F401

        return VllmOmniSharedMemory()

    def connector(self, address: str | None = None) -> Connector:
        """`address`: the prefix of another's segments, in this process or in one beside it."""
        return self.keep(SharedMemory(address))

    def close(self) -> None:
        """Also removes what the engine leaves for good: a segment and a lock file for each key that it cannot carry.

        Of this process's own puts: what a killed process left is the engine's to find, and the checks' to see.
        """
        names = {name for made in self._made for name in made.asked}
        super().close()
        for path in [path for path in SHM.iterdir() if any(name in path.name for name in names)]:
            path.unlink(missing_ok=True)


class SharedMemory:
    """One `SharedMemoryConnector`. A get takes the payload away; the stages are passed on, and the engine does not look at them.

    The engine's sizes are those of its envelope around the payload; here a size is the payload's.
    """

    endpoint: Endpoint | None = None
    carries_device_memory = False

    def __init__(self, address: str | None = None) -> None:
        from vllm_omni.distributed.omni_connectors.factory import OmniConnectorFactory
        from vllm_omni.distributed.omni_connectors.utils.config import ConnectorSpec

        self.address = address or f"assay-{os.getpid()}-{next(_serial)}-"
        self._native = OmniConnectorFactory.create_connector(ConnectorSpec("SharedMemoryConnector"))
        self._lock = threading.Lock()
        self._put: dict[str, int] = {}
        self.asked: set[str] = set()
        """The engine's names of whatever was to be put here, carried or not."""

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer, readers: int = 1) -> tuple[bool, int, Any]:
        """The engine logs what went wrong and says False."""
        if readers != 1:
            raise NotImplementedError("vllm-omni-shm: a payload has one reader")
        name, size = self.address + key, len(byte_view(data))  # the engine carries any object, the protocol bytes alone
        with self._lock:
            self.asked.add(name)
        ok, _, handle = self._native.put(from_stage, to_stage, name, data)
        if not ok:
            return False, 0, None
        with self._lock:
            self._put[name] = size
        return True, size, handle

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        # The engine would take an endpoint for a segment's description; on one host the name says it all.
        found = self._native.get(from_stage, to_stage, self.address + key, None if isinstance(handle, Endpoint) else handle)
        return None if found is None else (found[0], len(byte_view(found[0])))

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
        """The get has taken the payload away."""

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        self._native.cleanup(self.address + key)

    def holds(self, from_stage: str, to_stage: str, key: str) -> bool:
        return self.address + key in self._held()

    def usage(self) -> Mapping[str, int]:
        held = self._held()
        return {"segments": len(held), "bytes": sum(held.values())}

    def close(self) -> None:
        self._native.close()

    def _held(self) -> dict[str, int]:
        """What was put here and still lies on the host. A reader in another process tells nobody that it took a payload away."""
        with self._lock:
            self._put = {name: size for name, size in self._put.items() if (SHM / name).exists()}
            return dict(self._put)
