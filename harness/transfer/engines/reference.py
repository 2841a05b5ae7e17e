"""`transfer/reference`: the embedded manager, over a connector that ships with Assay."""

from __future__ import annotations

from harness.core.clock import Clock, VirtualClock
from harness.core.spec import EngineConfig
from harness.core.verdict import Unavailable
from harness.transfer.engines.memory import MemoryConnectorEngine
from harness.transfer.engines.shm import ShmConnectorEngine
from harness.transfer.engines.tcp import TcpConnectorEngine
from harness.transfer.protocol import Connector, Topology, TransferConfig
from harness.transfer.reference.lab import ReferenceLab
from harness.transfer.reference.manager import TransferManager

CONNECTORS = {"memory": MemoryConnectorEngine, "shm": ShmConnectorEngine, "tcp": TcpConnectorEngine}
"""What the option `connector` may name, and who makes it."""
OPTIONS = ("checksum", "connector")


class ReferenceTransfer:
    """Deploys reference managers. Its lab acts on all of them; there is one on a VirtualClock only."""

    def __init__(self, connector: str, clock: Clock, checked: bool = True, device: str = "cpu") -> None:
        if connector not in CONNECTORS:
            raise ValueError(f"option connector = {connector!r}: this engine runs over {', '.join(CONNECTORS)}")
        reason = CONNECTORS[connector].available()
        if reason:
            raise Unavailable(reason)
        self._clock, self._checked = clock, checked
        self._managers: list[TransferManager] = []
        self.lab = ReferenceLab(clock, ("copy", "store")) if isinstance(clock, VirtualClock) else None
        options = {} if connector == "memory" else {"checksum": "on" if checked else "off"}
        if connector == "shm" and device == "cuda":
            options["pin"] = "on"
        self._connectors = CONNECTORS[connector].build(EngineConfig("cpu", "cpu", options, 0), clock)

    @staticmethod
    def available() -> str | None:
        """It ships with Assay and runs wherever torch does."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> ReferenceTransfer:
        """ValueError for an option that it does not know; Unavailable where the connector that it names is."""
        unknown = set(config.options) - set(OPTIONS)
        if unknown:
            raise ValueError(f"transfer/reference: unknown options {sorted(unknown)}; it has {', '.join(OPTIONS)}")
        checksum = config.options.get("checksum", "on")
        if checksum not in ("on", "off"):
            raise ValueError(f"transfer/reference: option checksum = {checksum!r}: write on or off")
        return ReferenceTransfer(config.options.get("connector", "memory"), clock, checksum == "on", config.device)

    def deploy(self, topology: Topology | None, connector: Connector, config: TransferConfig) -> TransferManager:
        manager = TransferManager(topology, connector, config, self._clock, self.lab, self._checked)
        self._managers = [*self._open(), manager]
        return manager

    def connector(self, address: str | None = None) -> Connector:
        """Whoever asks closes it; the engine's own close takes what was left open."""
        self._connectors.lab = self.lab
        return self._connectors.connector(address)

    def usage(self) -> dict[str, int]:
        return {"managers": len(self._open())}

    def close(self) -> None:
        for manager in self._open():
            manager.close()
        self._managers = []
        self._connectors.close()

    def _open(self) -> list[TransferManager]:
        return [manager for manager in self._managers if not manager.closed]
