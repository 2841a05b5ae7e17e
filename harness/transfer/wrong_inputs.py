"""One wrong answer for each claim that no catalogued fault covers, so that every check is seen failing.

They come from no bug report: each says the opposite of one sentence, in the smallest place of the reference engine that can.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.core.faults import Role, fault
from harness.transfer.protocol import Delivery, KVPayload, Outcome, ReceiveRole

REFERENCE = "harness.transfer.reference"


def wrong_input(name: str, seam: str, *claims: str) -> Any:
    """Register a wrong input of the reference engine; `seam` is relative to it."""
    return fault(name, seam=f"{REFERENCE}.{seam}", claims=claims, role=Role.WRONG_INPUT)


@wrong_input("transfer/optin-on-by-default", "optin:OptIn._requested", "transfer.optin.default_off")
def optin_on_by_default(original: Any, optin: Any) -> bool:
    """A configuration that does not mention prefetch turns it on."""
    return original(optin) or optin._config.async_prefetch == "absent"


@wrong_input("transfer/optin-none-is-on", "optin:OptIn._requested", "transfer.optin.follows_flag")
def optin_none_is_on(original: Any, optin: Any) -> bool:
    """The flag None counts as asked for."""
    return original(optin) or optin._config.async_prefetch is None


@wrong_input("transfer/optin-lost-in-merge", "optin:OptIn._requested", "transfer.optin.survives_connector_config")
def optin_lost_in_merge(original: Any, optin: Any) -> bool:
    """A populated connector configuration replaces the flag."""
    return original(optin) and not optin._config.connector_options


@wrong_input("transfer/optin-companion-ignored", "optin:OptIn._vetoed_by_companion", "transfer.optin.off_with_companion")
def optin_companion_ignored(original: Any, optin: Any) -> bool:
    """A companion collector does not turn prefetch off."""
    return False


@wrong_input("transfer/optin-autoregressive", "optin:OptIn._vetoed_by_entry_point", "transfer.optin.off_autoregressive")
def optin_autoregressive(original: Any, optin: Any) -> bool:
    """The autoregressive entry point honours the flag."""
    return False


@wrong_input("transfer/start-ignores-optin", "manager:TransferManager._prefetches_here", "transfer.optin.start_while_off")
def start_ignores_optin(original: Any, manager: Any) -> bool:
    """A start fetches although prefetch is off."""
    return manager._pulls()


@wrong_input("transfer/size-zero", "receiver:Receiver._hit", "transfer.prefetch.delivers")
def size_zero(original: Any, receiver: Any, payload: Any, size: int, metadata: Any) -> Delivery:
    """A delivered payload says that it carried nothing."""
    return replace(original(receiver, payload, size, metadata), size=0)


@wrong_input("transfer/miss-is-hit", "prefetch:PrefetchTable.consume", "transfer.prefetch.miss")
def miss_is_hit(original: Any, table: Any, request_id: str) -> Delivery:
    """A request that nothing was started for is told of a hit."""
    delivery = original(table, request_id)
    return replace(delivery, outcome=Outcome.HIT) if delivery.outcome is Outcome.MISS else delivery


@wrong_input("transfer/started-anew", "prefetch:PrefetchTable._tracks", "transfer.prefetch.started_twice")
def started_anew(original: Any, table: Any, request_id: str) -> bool:
    """A second start of a live request begins a second transfer."""
    return False


@wrong_input("transfer/endpoint-not-needed", "prefetch:PrefetchTable._reachable", "transfer.prefetch.needs_endpoint")
def endpoint_not_needed(original: Any, table: Any, endpoint: Any) -> bool:
    """A prefetch without an endpoint asks whoever answers."""
    return True


@wrong_input("transfer/orphans-kept", "prefetch:PrefetchTable._drop_orphans", "transfer.prefetch.consume_drops_others")
def orphans_kept(original: Any, table: Any, request_id: str) -> None:
    """Consuming one request leaves the others' prefetches where they are."""


@wrong_input("transfer/leftover-kept", "prefetch:PrefetchTable._make_room", "transfer.prefetch.start_drops_leftover")
def leftover_kept(original: Any, table: Any, request_id: str) -> None:
    """Starting one request leaves another's prefetch where it is."""


@wrong_input("transfer/worker-survives-stop", "worker:Worker.close", "transfer.prefetch.stop")
def worker_survives_stop(original: Any, worker: Any) -> None:
    """Stopping forgets the prefetches and leaves the worker running."""


@wrong_input("transfer/keys-for-values", "manager:TransferManager._attached", "transfer.prefetch.apply")
def keys_for_values(original: Any, manager: Any, payload: KVPayload) -> KVPayload:
    """The request's past key values have keys and values exchanged."""
    return KVPayload(payload.values, payload.keys)


@wrong_input("transfer/consume-does-not-wait", "prefetch:PrefetchTable.consume", "transfer.prefetch.consume_waits")
def consume_does_not_wait(original: Any, table: Any, request_id: str) -> Delivery:
    """A request whose copy is under way misses."""
    job = table._tracked.get(request_id)
    if job is not None and not job.ended():
        table.abort(request_id)
    return original(table, request_id)


@wrong_input("transfer/world-of-one-leads", "topology:ReceivePlan._alone", "transfer.role.single")
def world_of_one_leads(original: Any, plan: Any) -> bool:
    """A world of one is treated as a group."""
    return not plan._initialised


@wrong_input("transfer/tp-is-a-group", "topology:ReceivePlan._grouped", "transfer.role.pure_tp")
def tp_is_a_group(original: Any, plan: Any) -> bool:
    """Tensor parallelism alone makes leaders and followers."""
    return plan._at.tp_rank > 0 or original(plan)


@wrong_input("transfer/cfg-rank-ignored", "topology:ReceivePlan._leads_group", "transfer.role.cfg_group")
def cfg_rank_ignored(original: Any, plan: Any) -> bool:
    """Every rank of a CFG group leads."""
    return plan._at.sp_rank == 0


@wrong_input("transfer/sp-leads-at-tp-zero", "topology:ReceivePlan._leads_group", "transfer.role.sp_group")
def sp_leads_at_tp_zero(original: Any, plan: Any) -> bool:
    """Only the group of TP rank 0 has a leader."""
    return original(plan) and plan._at.tp_rank == 0


@wrong_input("transfer/nobody-leads-world", "topology:ReceivePlan._leads_world", "transfer.role.hsdp_leader")
def nobody_leads_world(original: Any, plan: Any) -> bool:
    """A world without tensor parallelism has followers only."""
    return False


@wrong_input("transfer/all-lead-world", "topology:ReceivePlan._leads_world", "transfer.role.hsdp_follower")
def all_lead_world(original: Any, plan: Any) -> bool:
    """A world without tensor parallelism has leaders only."""
    return True


@wrong_input("transfer/uninitialised-leads", "topology:ReceivePlan._alone", "transfer.role.uninitialised")
def uninitialised_leads(original: Any, plan: Any) -> bool:
    """A rank without a parallel state takes itself for one of a group."""
    return plan._initialised and original(plan)


@wrong_input("transfer/follower-pulls", "manager:TransferManager._pulls", "transfer.role.follower_never_fetches")
def follower_pulls(original: Any, manager: Any) -> bool:
    """A follower fetches its leader's payload."""
    return manager._config.receives


@wrong_input("transfer/leader-does-not-pull", "manager:TransferManager._pulls", "transfer.role.owner_fetches")
def leader_does_not_pull(original: Any, manager: Any) -> bool:
    """Only ranks that are LOCAL fetch."""
    return original(manager) and manager.role is ReceiveRole.LOCAL


@wrong_input("transfer/last-token-lost", "pages:PageReader._count", "transfer.payload.bits")
def last_token_lost(original: Any, pages: Any, block_ids: Any, seq_len: int) -> int:
    """The last token is not sent."""
    return original(pages, block_ids, seq_len) - 1


@wrong_input("transfer/foreground-swaps", "manager:TransferManager.receive", "transfer.payload.received_bits")
def foreground_swaps(original: Any, manager: Any, request_id: str, endpoint: Any, timeout: float) -> Delivery:
    """The foreground path exchanges keys and values."""
    delivery = original(manager, request_id, endpoint, timeout)
    return replace(delivery, payload=KVPayload(delivery.payload.values, delivery.payload.keys)) if delivery.payload else delivery


@wrong_input("transfer/blocks-sorted", "pages:PageReader._rows", "transfer.payload.block_table")
def blocks_sorted(original: Any, pages: Any, kv: Any, block_ids: Any, count: int) -> Any:
    """Blocks are read in ascending order, not in the block table's."""
    return original(pages, kv, sorted(block_ids), count)


@wrong_input(
    "transfer/never-forgotten", "prefetch:PrefetchTable._forget", "transfer.lifecycle.delivered_once", "transfer.prefetch.delivers"
)
def never_forgotten(original: Any, table: Any, request_id: str) -> None:
    """A consumed prefetch stays tracked and is delivered again."""


@wrong_input("transfer/abort-by-prefix", "prefetch:PrefetchTable.abort", "transfer.lifecycle.abort_leaves_others")
def abort_by_prefix(original: Any, table: Any, request_id: str) -> None:
    """An abort reaches every request whose id begins alike."""
    for tracked in [t for t in table._tracked if t.startswith(request_id)]:
        original(table, tracked)


@wrong_input("transfer/told-twice", "prefetch:PrefetchTable._report", "transfer.lifecycle.completes_once")
def told_twice(original: Any, table: Any, job: Any, outcome: Any) -> None:
    """The end of a transfer is reported twice."""
    original(table, job, outcome)
    original(table, job, outcome)


@wrong_input("transfer/failure-latched", "receiver:Receiver.fetch", "transfer.failure.next_works")
def failure_latched(original: Any, receiver: Any, *args: Any, **kwargs: Any) -> Delivery:
    """After one failure every later fetch is a miss."""
    if vars(receiver).get("latched"):
        return Delivery(Outcome.MISS)
    delivery = original(receiver, *args, **kwargs)
    receiver.latched = delivery.outcome is Outcome.FAILED
    return delivery


@wrong_input("connector/stages-ignored", "memory:MemoryConnector.get", "connector.carry.unknown_key")
def stages_ignored(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, handle: Any = None) -> Any:
    """A key is found whatever stages it was put between."""
    return next(((held, len(held)) for slot, held in connector._held.items() if slot[2] == key), None)


@wrong_input("connector/buffer-kept", "memory:MemoryConnector._copy", "connector.carry.own_copy")
def buffer_kept(original: Any, connector: Any, data: Any) -> Any:
    """The caller's buffer is stored, not a copy of it."""
    from harness.transfer.buffers import byte_view

    return byte_view(data)


@wrong_input("connector/discard-forgotten", "memory:MemoryConnector.discard", "connector.hold.discard")
def discard_forgotten(original: Any, connector: Any, *where: Any) -> None:
    """A discarded payload stays."""


@wrong_input("connector/first-reader-takes", "memory:MemoryConnector.get", "connector.hold.many_reads")
def first_reader_takes(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, handle: Any = None) -> Any:
    """Reading a payload removes it."""
    found = original(connector, from_stage, to_stage, key, handle)
    connector.discard(from_stage, to_stage, key)
    return found


@wrong_input("connector/first-put-wins", "memory:MemoryConnector._publish", "connector.hold.replaced")
def first_put_wins(original: Any, connector: Any, slot: Any, held: Any) -> None:
    """A second payload under a key is dropped."""
    if slot not in connector._held:
        original(connector, slot, held)
