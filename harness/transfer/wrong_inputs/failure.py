"""Wrong answers about the life, the end and the failure of a transfer."""

from __future__ import annotations

from typing import Any

from harness.transfer.protocol import Delivery, Outcome
from harness.transfer.wrong_inputs.register import wrong_input


@wrong_input(
    "transfer/never-forgotten", "prefetch:PrefetchTable._forget", "transfer.lifecycle.delivered_once", "transfer.prefetch.delivers"
)
def never_forgotten(original: Any, table: Any, request_id: str) -> None:
    """A consumed prefetch stays tracked and is delivered again."""


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


@wrong_input("transfer/failed-is-discarded", "manager:TransferManager._handed_over", "transfer.failure.retried")
def failed_is_discarded(original: Any, manager: Any, request_id: str, delivery: Delivery, *sender: Any) -> Delivery:
    """A payload is discarded at the connector also when it could not be fetched."""
    manager._done(request_id, *sender)
    return delivery


@wrong_input("transfer/gives-up-at-once", "receiver:Receiver._await", "transfer.failure.receive_times_out")
def gives_up_at_once(original: Any, receiver: Any, look: Any, timeout: float, unwanted: Any) -> Any:
    """The timeout of a receive is not waited for."""
    return original(receiver, look, 0.0, unwanted)


@wrong_input("transfer/waits-on", "receiver:Receiver._await", "transfer.failure.receive_times_out")
def waits_on(original: Any, receiver: Any, look: Any, timeout: float, unwanted: Any) -> Any:
    """A receive waits twice as long as it was told."""
    return original(receiver, look, 2 * timeout, unwanted)


@wrong_input("transfer/abort-after-end-ignored", "prefetch:PrefetchTable.abort", "transfer.lifecycle.abort_drops_result")
def abort_after_end_ignored(original: Any, table: Any, request_id: str) -> Any:
    """An abort reaches only prefetches that have not ended."""
    job = table._tracked.get(request_id)
    return original(table, request_id) if job is None or not job.ended() else job.endpoint


@wrong_input("transfer/abort-ends-prefetch", "prefetch:PrefetchTable.abort", "transfer.lifecycle.abort_id_usable")
def abort_ends_prefetch(original: Any, table: Any, request_id: str) -> Any:
    """After one abort nothing is prefetched any more."""
    table._stopped = True
    return original(table, request_id)


@wrong_input("transfer/close-keeps-worker", "manager:TransferManager.close", "transfer.lifecycle.close")
def close_keeps_worker(original: Any, manager: Any) -> None:
    """A closed manager keeps its worker and its prefetches."""
    manager.closed = True


@wrong_input("transfer/generation-zero", "ledger:Ledger.begin", "transfer.lifecycle.generations")
def generation_zero(original: Any, ledger: Any, request_id: str) -> int:
    """Every use of an id is its first."""
    return 0


@wrong_input("transfer/ids-without-case", "shards:Addressing.key", "transfer.lifecycle.ids_distinct")
def ids_without_case(original: Any, addresses: Any, request_id: str, piece: Any) -> str:
    """Request ids are taken without their case."""
    return original(addresses, request_id.lower(), piece)


@wrong_input("transfer/stages-constant", "shards:Addressing.stages", "transfer.lifecycle.stages_apart")
def stages_constant(original: Any, addresses: Any) -> tuple[str, str]:
    """Every boundary is the first."""
    return "0", "1"
