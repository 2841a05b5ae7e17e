"""`connector/memory`: bytes carried inside one process."""

from __future__ import annotations

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.transfer.protocol import Connector
from harness.transfer.reference.memory import MemoryConnector


class MemoryConnectorEngine:
    """Makes memory connectors."""

    lab = None

    def __init__(self) -> None:
        self._made: list[MemoryConnector] = []

    @staticmethod
    def available() -> str | None:
        """It ships with Assay."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> MemoryConnectorEngine:
        """ValueError for any option. The clock is not needed: no call waits."""
        if config.options:
            raise ValueError(f"connector/memory: unknown options {sorted(config.options)}; it has none")
        return MemoryConnectorEngine()

    def connector(self, address: str | None = None) -> Connector:
        """ValueError for an address: nothing outside this process can join."""
        if address is not None:
            raise ValueError(f"connector/memory: address {address!r}; memory of another process cannot be joined")
        made = MemoryConnector()
        self._made.append(made)
        return made

    def usage(self) -> dict[str, int]:
        """`segments` and `bytes`, over all connectors made."""
        each = [made.usage() for made in self._made]
        return {name: sum(usage[name] for usage in each) for name in ("segments", "bytes")}

    def close(self) -> None:
        for made in self._made:
            made.close()
        self._made.clear()
