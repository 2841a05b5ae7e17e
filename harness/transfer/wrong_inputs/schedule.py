"""Wrong states: each step by itself is answered rightly, and only a row of them goes wrong."""

from __future__ import annotations

from typing import Any

from harness.transfer.protocol import Delivery, Outcome
from harness.transfer.wrong_inputs.register import wrong_input


@wrong_input("transfer/withdrawn-by-an-earlier-one", "manager:TransferManager._turn_down", "transfer.schedule.short")
def withdrawn_by_an_earlier_one(original: Any, manager: Any, request_id: str, *sender: Any) -> None:
    """A receiver takes an id that its predecessor withdrew for withdrawn: after abort, restart and reuse the payload stays."""
    by = vars(manager._connector).setdefault("withdrawn_by", {}).setdefault(request_id, manager)
    if by is manager:
        original(manager, request_id, *sender)


@wrong_input("transfer/failed-twice-is-lost", "receiver:Receiver.fetch", "transfer.schedule.directed")
def failed_twice_is_lost(original: Any, receiver: Any, order: Any, *args: Any) -> Delivery:
    """A request that failed twice in the foreground is not looked for a third time."""
    failures = vars(receiver).setdefault("failures", [])
    if failures.count(order.request_id) == 2:
        return Delivery(Outcome.MISS)
    delivery = original(receiver, order, *args)
    if delivery.outcome is Outcome.FAILED:
        failures.append(order.request_id)
    return delivery


@wrong_input("transfer/aborts-leak-places", "prefetch:PrefetchTable.abort", "transfer.schedule.long")
def aborts_leak_places(original: Any, table: Any, request_id: str) -> Any:
    """Each prefetch that is aborted keeps one of four places, and once none is left nothing is prefetched any more."""
    leaked = vars(table).setdefault("leaked", [])
    if request_id in table._tracked:
        leaked.append(request_id)
    endpoint = original(table, request_id)
    table._stopped = table._stopped or len(leaked) == 4
    return endpoint
