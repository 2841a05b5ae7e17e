"""The transfer manager: one side of a stage boundary, on one rank."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from harness.core.clock import Clock
from harness.transfer.protocol import (
    Buffer,
    Completion,
    Connector,
    Delivery,
    Endpoint,
    KVPayload,
    Outcome,
    ReceiveRole,
    Topology,
    TransferConfig,
)
from harness.transfer.reference.codec import PayloadCodec
from harness.transfer.reference.devices import record_use
from harness.transfer.reference.distribute import Distributor
from harness.transfer.reference.errors import TransferError
from harness.transfer.reference.lab import ReferenceLab
from harness.transfer.reference.ledger import Ledger
from harness.transfer.reference.optin import OptIn
from harness.transfer.reference.pages import PageReader
from harness.transfer.reference.prefetch import ENDED_AS, Prefetch, PrefetchTable
from harness.transfer.reference.receiver import Receiver
from harness.transfer.reference.topology import ReceivePlan

log = logging.getLogger(__name__)


class TransferManager:
    """See `harness.transfer.protocol.TransferManager`. Called by one thread; background work is its own.

    A payload is discarded at the connector once it was delivered (HIT) or its request aborted. After FAILED it stays, so that a receive may
    try again.
    """

    def __init__(
        self, topology: Topology | None, connector: Connector, config: TransferConfig, clock: Clock, lab: ReferenceLab | None = None
    ) -> None:
        self._plan, self._connector, self._config = ReceivePlan(topology), connector, config
        self.layout = config.layout
        self.role = self._plan.role()
        self.prefetch_enabled = OptIn(config).prefetches()
        self.connector_options: Mapping[str, Any] = MappingProxyType(dict(config.connector_options))
        self.endpoint = config.own_endpoint
        self.closed = False
        self._pages, self._codec, self._ledger = PageReader(config.layout), PayloadCodec(config.layout), Ledger()
        self._foreground, self._background = Receiver(self._codec, clock, lab), Receiver(self._codec, clock, lab)
        self._distributor = Distributor(topology)
        self._prefetches = PrefetchTable(self._prefetch, clock, self._ledger)

    def send(self, request_id: str, kv: Sequence[torch.Tensor], block_ids: Sequence[int], seq_len: int) -> None:
        """Publish a snapshot of the request's rows: the blocks may be reused on return.

        ValueError for KV of another layout or blocks that do not exist; TransferError if the connector refuses.
        """
        payload = self._pages.read(kv, block_ids, seq_len)
        self._publish(request_id, self._codec.encode(request_id, payload, seq_len))

    def start_prefetch(self, request_id: str, endpoint: Endpoint | None, device: torch.device | None = None) -> None:
        """Begin to fetch in the background; the copy to `device` is made there too. Returns at once."""
        if self._prefetches_here():
            self._prefetches.start(request_id, endpoint, device)

    def stop_prefetch(self) -> None:
        """Drop every prefetch and end the worker; a copy under way is waited for, so that nothing writes afterwards."""
        self._prefetches.stop()

    def consume(self, request_id: str) -> Delivery:
        """Take the request's prefetched cache; waits for one under way, up to `receive_timeout` for its sender."""
        return self._handed_over(request_id, self._prefetches.consume(request_id))

    def receive(self, request_id: str, endpoint: Endpoint | None, timeout: float) -> Delivery:
        """Fetch in the foreground, from `endpoint` or else the manager's own. Replaces a prefetch of the same request."""
        if not self._pulls():
            return Delivery(Outcome.MISS)
        self._prefetches.abort(request_id)
        generation = self._ledger.begin(request_id)
        delivery = self._foreground.fetch(request_id, partial(self._look, request_id, endpoint), timeout)
        self._ledger.end(request_id, generation, ENDED_AS[delivery.outcome])
        return self._handed_over(request_id, delivery, endpoint)

    def distribute(self, request_id: str, deliveries: Sequence[Delivery] = ()) -> Delivery:
        """Collective over the stage; see `Distributor.spread`."""
        return self._distributor.spread(request_id, deliveries)

    def apply(self, delivery: Delivery) -> KVPayload:
        """The request's `past_key_values`, safe to use on the current CUDA stream. ValueError for anything but a HIT."""
        if delivery.outcome is not Outcome.HIT or delivery.payload is None:
            raise ValueError(f"only a HIT can be applied, not {delivery.outcome.name} ({delivery.reason or 'no payload'})")
        record_use(delivery.payload)
        return self._attached(delivery.payload)

    def abort(self, request_id: str) -> None:
        """Give the request up, on either side: its fetch is not begun, or its result dropped, and its payload discarded."""
        self._prefetches.abort(request_id)
        self._withdraw(request_id)

    def completions(self) -> list[Completion]:
        """One for each prefetch submitted and each receive, as they ended. A prefetch dropped under way ends when its copy does."""
        return self._ledger.take()

    def usage(self) -> Mapping[str, int]:
        """`futures`, `workers`, `copies` and `held_bytes`, as `PrefetchTable.usage` gives them."""
        return self._prefetches.usage()

    def close(self) -> None:
        """End all work. May be called twice."""
        self.stop_prefetch()
        self.closed = True

    def _prefetches_here(self) -> bool:
        return self.prefetch_enabled and self._pulls()

    def _pulls(self) -> bool:
        """A follower's payload comes from its leader; pulling would take the leader's."""
        return self._config.receives and self.role is not ReceiveRole.FOLLOWER

    def _prefetch(self, job: Prefetch) -> Delivery:
        """On the worker's thread."""
        look = partial(self._look, job.request_id, job.endpoint)
        return self._background.fetch(job.request_id, look, self._config.receive_timeout, job.device, job.unwanted)

    def _look(self, request_id: str, endpoint: Endpoint | None) -> tuple[Buffer, int] | None:
        return self._connector.get(*self._stages(), self._key(request_id), self._sender(endpoint))

    def _sender(self, endpoint: Endpoint | None) -> Endpoint | None:
        """Whom to ask: the call's sender, for this call only."""
        return endpoint if endpoint is not None else self.endpoint

    def _key(self, request_id: str) -> str:
        """One key a request and shard. The shard comes first: request ids hold any character."""
        return f"kv/{self._plan.shard()}/{request_id}"

    def _stages(self) -> tuple[str, str]:
        return self._config.from_stage, self._config.to_stage

    def _publish(self, request_id: str, data: Buffer) -> None:
        ok, _, _ = self._connector.put(*self._stages(), self._key(request_id), data)
        if not ok:
            raise TransferError(f"the connector refused {len(data)} bytes of request {request_id!r}")

    def _handed_over(self, request_id: str, delivery: Delivery, endpoint: Endpoint | None = None) -> Delivery:
        """What was delivered is held no longer; a connector that cannot let go does not cost the request its cache."""
        if delivery.outcome is Outcome.HIT:
            try:
                self._done(request_id, endpoint)
            except Exception:
                log.exception("request %s was delivered, but its payload could not be discarded", request_id)
        return delivery

    def _withdraw(self, request_id: str) -> None:
        self._connector.discard(*self._stages(), self._key(request_id))

    def _done(self, request_id: str, endpoint: Endpoint | None) -> None:
        self._connector.done(*self._stages(), self._key(request_id), self._sender(endpoint))

    def _attached(self, payload: KVPayload) -> KVPayload:
        return payload
