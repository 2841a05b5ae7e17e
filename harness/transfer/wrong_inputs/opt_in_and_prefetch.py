"""Wrong answers about when and from whom a prefetch is made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.transfer.protocol import Delivery, KVPayload, Outcome, ReceiveRole
from harness.transfer.reference.landing import Berth, LandingPool
from harness.transfer.reference.prefetch import Prefetch
from harness.transfer.wrong_inputs.register import wrong_input


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
def size_zero(original: Any, receiver: Any, *loaded: Any) -> Delivery:
    """A delivered payload says that it carried nothing."""
    return replace(original(receiver, *loaded), size=0)


@wrong_input("transfer/miss-is-hit", "manager:TransferManager.consume", "transfer.prefetch.miss")
def miss_is_hit(original: Any, manager: Any, request_id: str) -> Delivery:
    """A request that nothing was started for is told of a hit."""
    delivery = original(manager, request_id)
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
def consume_does_not_wait(original: Any, table: Any, request_id: str) -> Any:
    """A request whose copy is under way misses."""
    job = table._tracked.get(request_id)
    if job is not None and not job.ended():
        table.abort(request_id)
    return original(table, request_id)


@wrong_input("transfer/started-in-foreground", "prefetch:PrefetchTable.start", "transfer.prefetch.start_returns")
def started_in_foreground(original: Any, table: Any, request_id: str, endpoint: Any, *where: Any) -> None:
    """A start waits for a first look at the sender before it returns."""
    table._fetch(Prefetch(request_id, 0, endpoint, *where, Berth(LandingPool())))
    original(table, request_id, endpoint, *where)


@wrong_input("transfer/looks-once", "receiver:Receiver._await", "transfer.prefetch.waits_for_sender", "transfer.failure.receive_waits")
def looks_once(original: Any, receiver: Any, look: Any, timeout: float, unwanted: Any) -> Any:
    """A fetch that comes before its sender is a miss."""
    return look()


@wrong_input("transfer/prefetch-asks-own", "manager:TransferManager._prefetch", "transfer.endpoint.prefetch_named")
def prefetch_asks_own(original: Any, manager: Any, job: Any) -> Delivery:
    """A prefetch asks the manager's own sender where there is one."""
    job.endpoint = manager.endpoint or job.endpoint
    return original(manager, job)


@wrong_input("transfer/senders-fetch", "manager:TransferManager._pulls", "transfer.optin.sender_never_fetches")
def senders_fetch(original: Any, manager: Any) -> bool:
    """Whether a stage receives is not asked."""
    return manager.role is not ReceiveRole.FOLLOWER
