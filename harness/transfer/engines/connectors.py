"""What the adapters of connectors share: they keep the connectors that they made, to count and to close."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from harness.transfer.protocol import Connector

Made = TypeVar("Made", bound=Connector)


class Connectors(Generic[Made]):
    """Base of a `ConnectorEngine`."""

    def __init__(self) -> None:
        self._made: list[Made] = []

    def keep(self, made: Made) -> Made:
        """Note a new connector; returns it."""
        self._made.append(made)
        return made

    def usage(self) -> Mapping[str, int]:
        """`segments` and `bytes`, over all connectors made."""
        each = [made.usage() for made in self._made]
        return {name: sum(usage[name] for usage in each) for name in ("segments", "bytes")}

    def close(self) -> None:
        """Close all of them. May be called twice."""
        for made in self._made:
            made.close()
        self._made.clear()
