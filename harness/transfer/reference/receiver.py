"""Fetching one payload: wait for the sender, copy, check, deliver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.clock import TICK, Clock, Predicate
from harness.transfer.protocol import Delivery, KVPayload, Outcome, Pages
from harness.transfer.reference.codec import PayloadCodec
from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.lab import ReferenceLab
from harness.transfer.reference.landing import Berth, DeviceCopy
from harness.transfer.reference.pages import PagedCache
from harness.transfer.reference.shards import Found, Gather
from harness.transfer.reference.wire import Land

FIRST_PAUSE, LONGEST_PAUSE = TICK, 16 * TICK
"""Seconds between two looks at the connector; they double from the first to the longest."""


@dataclass(frozen=True)
class Order:
    """What is asked of one fetch: which request, from whom, and where it is to land.

    `device` None: in host memory. `skip` first tokens are left out. `into`: the caller's pages instead of tensors of its own.
    """

    request_id: str
    gather: Gather
    berth: Berth
    device: torch.device | None = None
    skip: int = 0
    into: Pages | None = None


class Receiver:
    """Used by one thread at a time."""

    def __init__(self, codec: PayloadCodec, cache: PagedCache, clock: Clock, lab: ReferenceLab | None) -> None:
        self._codec, self._cache, self._clock, self._lab = codec, cache, clock, lab
        self._device_copy = DeviceCopy()

    def fetch(self, order: Order, timeout: float, unwanted: Predicate = lambda: False) -> Delivery:
        """Look until the shards are there, `timeout` seconds have passed, or the payload is `unwanted`. Never raises.

        HIT with the payload where it was to land; MISS if none came; FAILED, with the reason, for anything that raised.
        """
        try:
            found = self._await(order.gather.look, timeout, unwanted)
            if found is None:
                return self._miss(order.request_id)
            payload, metadata = self._load(order, found)
            return self._hit(order, payload, sum(shard.size for shard in found), metadata)
        except Exception as error:  # noqa: BLE001 (on a worker nobody else would hear of it)
            return self._failure(order.request_id, error)

    def _await(self, look: Callable[[], list[Found] | None], timeout: float, unwanted: Predicate) -> list[Found] | None:
        deadline, pause = self._clock.now() + timeout, FIRST_PAUSE
        while (found := look()) is None:
            left = deadline - self._clock.now()
            if left <= 0 or self._clock.wait(unwanted, min(pause, left)):
                return None
            pause = min(2 * pause, LONGEST_PAUSE)
        return found

    def _load(self, order: Order, found: Sequence[Found]) -> tuple[KVPayload, Mapping[str, Any]]:
        target = order.into.kv[0][0].device if order.into is not None else order.device
        on_card = target is not None and target.type == "cuda"
        land = self._land(order, target if on_card else None, sum(shard.size for shard in found))
        if self._lab is not None:
            self._lab.enter("copy")
        with self._device_copy.beside(target if on_card else _card_of(found)):
            parts = [self._codec.decode(order.request_id, shard.data, land, shard.shard.piece) for shard in found]
            lengths = {(len(payload.keys[0]), metadata["seq_len"]) for payload, metadata in parts}
            if len(lengths) != 1:
                raise PayloadError(f"the shards of request {order.request_id!r} hold different (tokens, seq_len): {sorted(lengths)}")
            return self._joined([payload for payload, _ in parts]), parts[0][1]

    def _land(self, order: Order, card: torch.device | None, size: int) -> Land:
        """How the bytes leave the connector's memory: for pages of this host not at all, the rows are copied from where they lie."""
        if card is not None:
            return lambda body: self._device_copy.to(body, card)
        if order.into is not None:
            return lambda body: body.cpu()
        return _HostLanding(order.berth.take(size))

    def _joined(self, parts: Sequence[KVPayload]) -> KVPayload:
        """The shards' heads side by side, in the order of this rank's heads."""
        if len(parts) == 1:
            return parts[0]
        keys = zip(*(part.keys for part in parts), strict=True)
        values = zip(*(part.values for part in parts), strict=True)
        return KVPayload(tuple(map(_beside, keys)), tuple(map(_beside, values)))

    def _miss(self, request_id: str) -> Delivery:
        return Delivery(Outcome.MISS)

    def _failure(self, request_id: str, error: Exception) -> Delivery:
        return Delivery(Outcome.FAILED, reason=f"{type(error).__name__}: {error}")

    def _hit(self, order: Order, payload: KVPayload, size: int, metadata: Mapping[str, Any]) -> Delivery:
        valid = self._valid_tokens(payload, metadata)
        if order.skip > valid:
            raise ValueError(f"skip_tokens = {order.skip} of a payload of {valid} tokens")
        rest = _without(payload, order.skip)
        if order.into is None:
            return Delivery(Outcome.HIT, rest, size, valid - order.skip, metadata)
        self._cache.check_room(order.into, valid)
        self._cache.write(order.into, rest, self._first_token(order.skip))
        return Delivery(Outcome.HIT, None, size, valid - order.skip, metadata)

    def _first_token(self, skip: int) -> int:
        """Which token the first fetched row is: the skipped ones stand before it."""
        return skip

    def _valid_tokens(self, payload: KVPayload, metadata: Mapping[str, Any]) -> int:
        """Rows that hold KV; fewer than the metadata's seq_len where the sender's blocks held fewer."""
        return min(len(payload.keys[0]), metadata["seq_len"])


class _HostLanding:
    """Copies body after body into one buffer, each to a multiple of 64 bytes."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer, self._used = buffer, 0

    def __call__(self, body: torch.Tensor) -> torch.Tensor:
        place = self._buffer[self._used : self._used + len(body)]
        self._used += -(-len(body) // 64) * 64
        return place.copy_(body)


def _card_of(found: Sequence[Found]) -> torch.device | None:
    """The card that a payload lies on."""
    data = found[0].data
    return data.device if isinstance(data, torch.Tensor) and data.is_cuda else None


def _beside(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Tensors [tokens, heads, head_dim] joined along their heads; as bytes, since float8 cannot be joined everywhere."""
    dtype = tensors[0].dtype
    return torch.cat([tensor.contiguous().view(torch.uint8) for tensor in tensors], dim=1).view(dtype)


def _without(payload: KVPayload, first: int) -> KVPayload:
    return KVPayload(tuple(k[first:] for k in payload.keys), tuple(v[first:] for v in payload.values)) if first else payload
