"""The shards of one request: the payloads that a rank sends or asks for, one for each rank at the other side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.transfer.protocol import Buffer, Endpoint, TransferConfig
from harness.transfer.reference.heads import Piece
from harness.transfer.reference.topology import ReceivePlan


@dataclass(frozen=True)
class Shard:
    """One payload under its key: the heads in it, and the sender that holds it (None: whoever the connector finds)."""

    key: str
    piece: Piece
    endpoint: Endpoint | None = None


@dataclass(frozen=True)
class Found:
    """A shard that came: its bytes, and how many were carried."""

    shard: Shard
    data: Buffer
    size: int


class Gather:
    """Asks for the shards of one request until all are there. Used by one thread."""

    def __init__(self, shards: Sequence[Shard], get: Callable[[str, Any], tuple[Buffer, int] | None]) -> None:
        self._shards, self._get = shards, get
        self._found: dict[str, Found] = {}

    def look(self) -> list[Found] | None:
        """Ask for those that have not come; all of them in order once none is missing, else None."""
        for shard in self._shards:
            if shard.key in self._found:
                continue
            came = self._get(shard.key, shard.endpoint)
            if came is not None:
                self._found[shard.key] = Found(shard, *came)
        if len(self._found) < len(self._shards):
            return None
        return [self._found[shard.key] for shard in self._shards]


class Addressing:
    """Under which keys, and at which senders, the shards of one rank's requests are found. Both sides of a boundary reckon alike."""

    def __init__(self, plan: ReceivePlan, config: TransferConfig) -> None:
        self._plan, self._config = plan, config

    def stages(self) -> tuple[str, str]:
        return self._config.from_stage, self._config.to_stage

    def key(self, request_id: str, piece: Piece) -> str:
        """One key a request and pair of ranks. The ranks come first: request ids hold any character."""
        return f"kv/{piece.source_rank}-{piece.target_rank}/{request_id}"

    def sent(self, request_id: str) -> list[Shard]:
        """What this rank of the sender stage publishes."""
        return [Shard(self.key(request_id, piece), piece) for piece in self._plan.sent(self._config.layout)]

    def received(self, request_id: str, base: Endpoint | None) -> list[Shard]:
        """What this rank of the receiver stage asks for: each sender rank that holds some of its heads, at the port where it listens."""
        pieces = self._plan.received(self._config.layout)
        return [Shard(self.key(request_id, piece), piece, self._listens(base, piece.source_rank)) for piece in pieces]

    def listens_at(self) -> Endpoint | None:
        """Where this rank's own sender listens."""
        return self._listens(self._config.own_endpoint, self._plan.rank())

    def _listens(self, base: Endpoint | None, rank: int) -> Endpoint | None:
        """The stage's rank 0 is at `base`; each rank of a host has a port of its own."""
        return base if base is None else replace(base, port=base.port + rank)
