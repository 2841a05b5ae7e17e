"""`connector/tcp`: bytes carried over TCP."""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.core.clock import Clock, VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.connectors import Connectors
from harness.transfer.protocol import Connector
from harness.transfer.reference.lab import ConnectorLab, ReferenceLab
from harness.transfer.reference.tcp import DEADLINE, LIMIT, TcpConnector

OPTIONS = ("checksum", "deadline", "limit")


class TcpConnectorEngine(Connectors[TcpConnector]):
    """Makes tcp connectors. Its lab acts on those made from then on; there is one on a VirtualClock, or a `Pause` set by hand."""

    def __init__(self, checksum: bool, deadline: float, limit: int, clock: Clock) -> None:
        super().__init__()
        self._checksum, self._deadline, self._limit = checksum, deadline, limit
        self.lab: ConnectorLab | None = ReferenceLab(clock, ("store", "damage")) if isinstance(clock, VirtualClock) else None

    @staticmethod
    def available() -> str | None:
        """It ships with Assay, and needs the loopback interface alone."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> TcpConnectorEngine:
        """ValueError for a wrong option. Sockets wait in wall time, whatever the clock."""
        refuse_unknown("connector/tcp", config.options)
        return TcpConnectorEngine(is_checked(config.options), deadline_of(config.options), limit_of(config.options), clock)

    def connector(self, address: str | None = None) -> Connector:
        """One that listens at a free port of the loopback interface, and asks `address` by default."""
        return self.keep(TcpConnector(address, checksum=self._checksum, deadline=self._deadline, limit=self._limit, lab=self.lab))


def refuse_unknown(engine: str, options: Mapping[str, str]) -> None:
    """ValueError for an option beside those of a connector with endpoints."""
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise ValueError(f"{engine}: unknown options {sorted(unknown)}; it has {', '.join(OPTIONS)}")


def is_checked(options: Mapping[str, str]) -> bool:
    """The option `checksum`: on or off; ValueError for anything else."""
    text = options.get("checksum", "on")
    if text not in ("on", "off"):
        raise ValueError(f"option checksum = {text!r}: write on or off")
    return text == "on"


def deadline_of(options: Mapping[str, str]) -> float:
    """The option `deadline` in seconds, above 0 and finite; ValueError for anything else."""
    text = options.get("deadline", str(DEADLINE))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ValueError(f"option deadline = {text!r}: give seconds above 0")
    return seconds


def limit_of(options: Mapping[str, str]) -> int:
    """The option `limit` in bytes, at least 1; ValueError for anything else."""
    text = options.get("limit", str(LIMIT))
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"option limit = {text!r}: give bytes, at least 1")
    return int(text)
