"""`connector/memory`: bytes carried inside one process."""

from __future__ import annotations

from harness.core.clock import Clock, VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.connectors import Connectors
from harness.transfer.protocol import Connector
from harness.transfer.reference.lab import ReferenceLab
from harness.transfer.reference.memory import MemoryConnector


class MemoryConnectorEngine(Connectors[MemoryConnector]):
    """Makes memory connectors. Its lab acts on all of them; there is one on a VirtualClock only."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.lab = ReferenceLab(clock, ("store",)) if isinstance(clock, VirtualClock) else None

    @staticmethod
    def available() -> str | None:
        """It ships with Assay."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> MemoryConnectorEngine:
        """ValueError for any option."""
        if config.options:
            raise ValueError(f"connector/memory: unknown options {sorted(config.options)}; it has none")
        return MemoryConnectorEngine(clock)

    def connector(self, address: str | None = None) -> Connector:
        """ValueError for an address: nothing outside this process can join."""
        if address is not None:
            raise ValueError(f"connector/memory: address {address!r}; memory of another process cannot be joined")
        return self.keep(MemoryConnector(self.lab))
