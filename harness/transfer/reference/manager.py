"""The transfer manager: one side of a stage boundary, on one rank."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
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
    LayerKV,
    Outcome,
    Pages,
    ReceiveRole,
    Topology,
    TransferConfig,
)
from harness.transfer.reference.codec import PayloadCodec
from harness.transfer.reference.distribute import Distributor
from harness.transfer.reference.lab import ReferenceLab
from harness.transfer.reference.landing import Berth, LandingPool, record_use
from harness.transfer.reference.ledger import Ledger
from harness.transfer.reference.memory_floor import MemoryFloor
from harness.transfer.reference.optin import OptIn
from harness.transfer.reference.pages import PagedCache
from harness.transfer.reference.prefetch import ENDED_AS, Prefetch, PrefetchTable
from harness.transfer.reference.receiver import Order, Receiver
from harness.transfer.reference.sender import Sender
from harness.transfer.reference.shards import Addressing, Gather, Shard
from harness.transfer.reference.topology import ReceivePlan

log = logging.getLogger(__name__)


class TransferManager:
    """See `harness.transfer.protocol.TransferManager`. Called by one thread; background work is its own. `checked` as in `Wire`.

    The connector is told that this reader is done once a payload was delivered (HIT) or its request aborted or rejected. After FAILED the
    payload stays, so that a receive may try again.
    """

    def __init__(
        self,
        topology: Topology | None,
        connector: Connector,
        config: TransferConfig,
        clock: Clock,
        lab: ReferenceLab | None = None,
        checked: bool = True,
    ) -> None:
        self._connector, self._config, self._clock = connector, config, clock
        plan = ReceivePlan(topology)
        self._addresses = Addressing(plan, config)
        self.layout = config.layout
        self.role = plan.role()
        self.prefetch_enabled = OptIn(config).prefetches()
        self.connector_options: Mapping[str, Any] = MappingProxyType(dict(config.connector_options))
        self.endpoint = config.own_endpoint
        self.listens_at = self._addresses.listens_at()
        self.closed = False
        self._reader = uuid.uuid4().hex
        cache, codec = PagedCache(config.layout), PayloadCodec(config.layout, checked)
        self._sender = Sender(self._addresses, cache, codec, connector, clock)
        self._ledger, self._landing, self._floor = Ledger(), LandingPool(), MemoryFloor(config.min_free_device, lab)
        self._foreground, self._background = Receiver(codec, cache, clock, lab), Receiver(codec, cache, clock, lab)
        self._distributor = Distributor(topology)
        self._prefetches = PrefetchTable(self._prefetch, clock, self._ledger, self._landing)

    def send(
        self,
        request_id: str,
        kv: Sequence[LayerKV],
        block_ids: Sequence[int],
        seq_len: int,
        *,
        readers: int = 1,
        lease: float | None = None,
    ) -> None:
        """Publish a snapshot of the request's rows: the blocks may be reused on return.

        ValueError for KV of another layout, blocks that do not exist, an id that is live, a lease that is not above 0; TransferError if the
        connector refuses.
        """
        self._sender.send(request_id, kv, block_ids, seq_len, readers, lease)

    def start_prefetch(self, request_id: str, endpoint: Endpoint | None, device: torch.device | None = None, skip_tokens: int = 0) -> None:
        """Begin to fetch in the background; the copy to `device` is made there too. Returns at once.

        ValueError for a negative `skip_tokens`, and for heads that do not divide over the stages' ranks.
        """
        _check_skip(skip_tokens)
        if self._prefetches_here() and self._floor.leaves_room(device):
            # A plan that is refused is told to the caller; on the worker nobody would hear of it.
            self._shards(request_id, endpoint)
            self._prefetches.start(request_id, endpoint, device, skip_tokens)

    def stop_prefetch(self) -> None:
        """Drop every prefetch and end the worker; a copy under way is waited for, so that nothing writes afterwards."""
        self._prefetches.stop()

    def consume(self, request_id: str) -> Delivery:
        """Take the request's prefetched cache; waits for one under way, up to `receive_timeout` for its sender."""
        return self._handed_over(request_id, *self._prefetches.consume(request_id))

    def receive(
        self, request_id: str, endpoint: Endpoint | None, timeout: float, *, into: Pages | None = None, skip_tokens: int = 0
    ) -> Delivery:
        """Fetch in the foreground, from `endpoint` or else the manager's own. Replaces a prefetch of the same request.

        ValueError for a negative `skip_tokens`, and for heads that do not divide over the stages' ranks. FAILED for pages of another
        layout, and for those without room for what came.
        """
        _check_skip(skip_tokens)
        if not self._pulls():
            return Delivery(Outcome.MISS)
        gather = self._gather(request_id, endpoint)
        self._prefetches.abort(request_id)
        generation, berth = self._ledger.begin(request_id), Berth(self._landing)
        order = Order(request_id, gather, berth, None, self._skip(request_id, skip_tokens), into)
        delivery = self._foreground.fetch(order, timeout)
        berth.hand_over() if delivery.outcome is Outcome.HIT else berth.give_back()
        self._ledger.end(request_id, generation, ENDED_AS[delivery.outcome])
        return self._handed_over(request_id, delivery, endpoint)

    def receive_branches(self, branches: Mapping[str, str], endpoint: Endpoint | None, timeout: float) -> Mapping[str, Delivery]:
        """One receive after the other, up to one deadline; a branch that does not come costs the others nothing that is there."""
        deadline = self._clock.now() + timeout
        return {branch: self.receive(sent_as, endpoint, max(0.0, deadline - self._clock.now())) for branch, sent_as in branches.items()}

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
        """Give the request up, on either side: its fetch is not begun, or its result dropped, and its payload let go of."""
        if self._config.sends:
            self._sender.withdraw(request_id)
            return
        self._turn_down(request_id, self._prefetches.abort(request_id))

    def reject(self, request_id: str, endpoint: Endpoint | None = None) -> None:
        """As an abort, of a request that was never begun here: `endpoint` is its sender, or else the manager's own."""
        self._turn_down(request_id, self._prefetches.abort(request_id) or endpoint)

    def completions(self) -> list[Completion]:
        """One for each prefetch submitted and each receive, as they ended. A prefetch dropped under way ends when its copy does."""
        return self._ledger.take()

    def usage(self) -> Mapping[str, int]:
        """What `PrefetchTable.usage` gives, and `leases`: payloads sent for a time that are still held."""
        return {**self._prefetches.usage(), "leases": self._sender.leases()}

    def close(self) -> None:
        """End all work, and every lease. May be called twice. What was sent without a lease stays with the connector."""
        self.stop_prefetch()
        self._sender.close()
        self.closed = True

    def _prefetches_here(self) -> bool:
        return self.prefetch_enabled and self._pulls()

    def _pulls(self) -> bool:
        """A follower's payload comes from its leader; pulling would take the leader's."""
        return self._config.receives and self.role is not ReceiveRole.FOLLOWER

    def _prefetch(self, job: Prefetch) -> Delivery:
        """On the worker's thread."""
        gather = self._gather(job.request_id, job.endpoint)
        order = Order(job.request_id, gather, job.berth, job.device, self._skip(job.request_id, job.skip))
        return self._background.fetch(order, self._config.receive_timeout, job.unwanted)

    def _skip(self, request_id: str, skip_tokens: int) -> int:
        """How many of the first tokens this fetch leaves out: what its own call says, whatever an earlier one said."""
        return skip_tokens

    def _gather(self, request_id: str, endpoint: Endpoint | None) -> Gather:
        return Gather(self._shards(request_id, endpoint), self._get)

    def _shards(self, request_id: str, endpoint: Endpoint | None) -> list[Shard]:
        return self._addresses.received(request_id, self._sender_of(endpoint))

    def _get(self, key: str, sender: Endpoint | None) -> tuple[Buffer, int] | None:
        return self._connector.get(*self._addresses.stages(), key, sender)

    def _sender_of(self, endpoint: Endpoint | None) -> Endpoint | None:
        """Whom to ask: the call's sender, for this call only."""
        return endpoint if endpoint is not None else self.endpoint

    def _handed_over(self, request_id: str, delivery: Delivery, endpoint: Endpoint | None) -> Delivery:
        """What was delivered is held no longer; a connector that cannot let go does not cost the request its cache."""
        if delivery.outcome is Outcome.HIT:
            if delivery.payload is not None:
                record_use(delivery.payload)
            try:
                self._done(request_id, endpoint)
            except Exception:
                log.exception("request %s was delivered, but its payload could not be let go of", request_id)
        return delivery

    def _turn_down(self, request_id: str, endpoint: Endpoint | None) -> None:
        """This reader will not come for the payload. A follower never would: it reads nothing, and its leader is told the same."""
        if self._pulls():
            self._done(request_id, endpoint)

    def _done(self, request_id: str, endpoint: Endpoint | None) -> None:
        """Under this manager's name: of one that has its payload and aborts, or aborts twice, the second word is no other reader's."""
        for shard in self._shards(request_id, endpoint):
            self._connector.done(*self._addresses.stages(), shard.key, shard.endpoint, self._reader)

    def _attached(self, payload: KVPayload) -> KVPayload:
        return payload


def _check_skip(skip_tokens: int) -> None:
    if skip_tokens < 0:
        raise ValueError(f"skip_tokens = {skip_tokens}; it is at least 0")
