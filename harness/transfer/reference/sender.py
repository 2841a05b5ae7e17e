"""The sending half of a manager: snapshots of paged caches, published shard by shard."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.core.clock import Clock
from harness.transfer.protocol import Buffer, Connector, KVPayload, LayerKV
from harness.transfer.reference.codec import PayloadCodec
from harness.transfer.reference.errors import TransferError
from harness.transfer.reference.heads import Piece
from harness.transfer.reference.leases import Leases
from harness.transfer.reference.pages import PagedCache
from harness.transfer.reference.shards import Addressing, Shard


class Sender:
    """Sends the heads of one rank. Called by one thread; leases end on a thread of their own."""

    def __init__(self, addresses: Addressing, cache: PagedCache, codec: PayloadCodec, connector: Connector, clock: Clock) -> None:
        self._addresses, self._cache, self._codec, self._connector = addresses, cache, codec, connector
        self._leases = Leases(self._expire, clock)

    def send(
        self, request_id: str, kv: Sequence[LayerKV], block_ids: Sequence[int], seq_len: int, readers: int, lease: float | None
    ) -> None:
        """See `TransferManager.send`. Either every shard is published, or none."""
        if readers < 1:
            raise ValueError(f"readers = {readers}; a payload has at least one")
        if lease is not None and not lease > 0:
            raise ValueError(f"lease = {lease}; give seconds above 0, or None")
        if self._is_live(request_id):
            raise ValueError(f"request {request_id!r} is live: what was sent under this id has not been received, aborted or let go of")
        payload = self._cache.read(kv, block_ids, seq_len)
        # The lease of an earlier payload of this id may still run; it has no say over this one.
        self._leases.end(request_id)
        try:
            for shard in self._addresses.sent(request_id):
                self._publish(request_id, shard, self._encoded(request_id, payload, seq_len, shard.piece), readers)
            if lease is not None:
                self._leases.begin(request_id, lease)
        except Exception:
            self._discard(request_id)
            raise

    def withdraw(self, request_id: str) -> None:
        """Nobody is given the request any more; nothing happens where nothing is held."""
        self._leases.end(request_id)
        self._discard(request_id)

    def leases(self) -> int:
        """Leases that run, of payloads that are still held."""
        return sum(map(self._is_live, self._leases.names()))

    def close(self) -> None:
        """End every lease."""
        self._leases.close()

    def _encoded(self, request_id: str, payload: KVPayload, seq_len: int, piece: Piece) -> torch.Tensor:
        """One shard's frame: on the cache's card where the connector carries device memory, else in host memory."""
        device = payload.keys[0].device
        stays = device.type == "cuda" and self._connector.carries_device_memory
        frame = self._codec.encode(request_id, payload, seq_len, piece, device if stays else None)
        if device.type == "cuda":
            # The blocks may be reused on return, and other streams read the frame.
            torch.cuda.current_stream(device).synchronize()
        return frame

    def _is_live(self, request_id: str) -> bool:
        return any(self._connector.holds(*self._addresses.stages(), shard.key) for shard in self._addresses.sent(request_id))

    def _publish(self, request_id: str, shard: Shard, data: Buffer, readers: int) -> None:
        ok, _, _ = self._connector.put(*self._addresses.stages(), shard.key, data, readers)
        if not ok:
            raise TransferError(f"the connector refused {len(data)} bytes of request {request_id!r}")

    def _expire(self, request_id: str) -> None:
        """The lease ended: nobody may read what the sender no longer keeps for them."""
        self._discard(request_id)

    def _discard(self, request_id: str) -> None:
        for shard in self._addresses.sent(request_id):
            self._connector.discard(*self._addresses.stages(), shard.key)
