"""`connector/memory`: bytes carried inside one process."""

from __future__ import annotations

from harness.core.clock import Clock, VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.protocol import Connector
from harness.transfer.reference.lab import ReferenceLab
from harness.transfer.reference.memory import MemoryConnector


class MemoryConnectorEngine:
    """Makes memory connectors. Its lab acts on all of them; there is one on a VirtualClock only."""

    def __init__(self, clock: Clock) -> None:
        self._made: list[MemoryConnector] = []
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
        made = MemoryConnector(self.lab)
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
