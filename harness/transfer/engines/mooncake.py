"""`connector/mooncake`: bytes carried by Mooncake's transfer engine, over TCP on the loopback interface."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.transfer.engines.connectors import Connectors
from harness.transfer.engines.tcp import deadline_of, is_checked, limit_of, refuse_unknown
from harness.transfer.protocol import Connector

if TYPE_CHECKING:
    pass

LIBRARIES = {"libibverbs.so.1": "libibverbs1", "libnuma.so.1": "libnuma1", "libcurl.so.4": "libcurl4"}
"""What the wheel links to and does not bring, and Debian's packages for it. The first is needed without any RDMA card, too."""


class MooncakeConnectorEngine(Connectors["MooncakeConnector"]):
    """Makes connectors, each with an engine of Mooncake's own."""

    lab = None

    def __init__(self, checksum: bool, deadline: float, limit: int) -> None:
        super().__init__()
        self._checksum, self._deadline, self._limit = checksum, deadline, limit

    @staticmethod
    def available() -> str | None:
        """Whether the system's libraries are there that its wheel asks for."""
        missing = [package for library, package in LIBRARIES.items() if not _loads(library)]
        return f"mooncake needs libraries of the system: apt-get install {' '.join(missing)}" if missing else None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> MooncakeConnectorEngine:
        """ValueError for a wrong option."""
        refuse_unknown("connector/mooncake", config.options)
        return MooncakeConnectorEngine(is_checked(config.options), deadline_of(config.options), limit_of(config.options))

    def connector(self, address: str | None = None) -> Connector:
        """One that asks `address` by default."""
        from harness.transfer.engines.mooncake_connector import MooncakeConnector

        return self.keep(MooncakeConnector(address, checksum=self._checksum, deadline=self._deadline, limit=self._limit))


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
