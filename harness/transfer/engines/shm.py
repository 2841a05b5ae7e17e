"""`connector/shm`: bytes carried in shared memory, between processes of one machine."""

from __future__ import annotations

from harness.core.clock import Clock, VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.connectors import Connectors
from harness.transfer.protocol import Connector
from harness.transfer.reference.lab import ConnectorLab, ReferenceLab
from harness.transfer.reference.shm import DEFAULT_LIMIT, ShmConnector
from harness.transfer.reference.shm_transport import unavailable

OPTIONS = ("checksum", "limit", "pin")


class ShmConnectorEngine(Connectors[ShmConnector]):
    """Makes shared-memory connectors. Its lab acts on those made from then on; there is one on a VirtualClock, or a `Pause` set by hand."""

    def __init__(self, checksum: bool, limit: int, pinned: bool, clock: Clock) -> None:
        super().__init__()
        self._checksum, self._limit, self._pinned = checksum, limit, pinned
        self.lab: ConnectorLab | None = ReferenceLab(clock, ("store", "damage")) if isinstance(clock, VirtualClock) else None

    @staticmethod
    def available() -> str | None:
        """Where there is a tmpfs at /dev/shm."""
        return unavailable()

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> ShmConnectorEngine:
        """ValueError for an option, or a value, that it does not know."""
        unknown = set(config.options) - set(OPTIONS)
        if unknown:
            raise ValueError(f"connector/shm: unknown options {sorted(unknown)}; it has {', '.join(OPTIONS)}")
        checksum, limit = config.options.get("checksum", "on"), config.options.get("limit", str(DEFAULT_LIMIT))
        pin = config.options.get("pin", "off")
        for name, value in (("checksum", checksum), ("pin", pin)):
            if value not in ("on", "off"):
                raise ValueError(f"connector/shm: option {name} = {value!r}; it is on or off")
        if not limit.isdecimal():
            raise ValueError(f"connector/shm: option limit = {limit!r}; give bytes")
        return ShmConnectorEngine(checksum == "on", int(limit), pin == "on", clock)

    def connector(self, address: str | None = None) -> Connector:
        """A peer of a transport of its own, or of the one that `address` names."""
        return self.keep(ShmConnector(address, checksum=self._checksum, limit=self._limit, pinned=self._pinned, lab=self.lab))
