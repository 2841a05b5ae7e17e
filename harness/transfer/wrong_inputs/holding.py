"""Wrong answers about who holds a payload, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.transfer.protocol import Delivery, Outcome
from harness.transfer.wrong_inputs.register import wrong_input


@wrong_input("transfer/sender-abort-ignored", "sender:Sender.withdraw", "transfer.abort.sender")
def sender_abort_ignored(original: Any, sender: Any, request_id: str) -> None:
    """What a sender aborts stays published."""


@wrong_input("transfer/reader-without-name", "manager:TransferManager._done", "transfer.readers.abort_is_ones_own")
def reader_without_name(original: Any, manager: Any, request_id: str, endpoint: Any) -> None:
    """A reader does not say who it is, so that its second word counts as another's."""
    own, manager._reader = manager._reader, ""
    original(manager, request_id, endpoint)
    manager._reader = own


@wrong_input("transfer/lease-outlives", "leases:Leases.end", "transfer.lease.within")
def lease_outlives(original: Any, leases: Any, name: str) -> None:
    """The lease of a payload that was read goes on, and ends for whatever is sent under the id next."""


@wrong_input("transfer/readers-unchecked", "sender:Sender.send", "transfer.send.readers_and_lease")
def readers_unchecked(original: Any, sender: Any, *request: Any) -> None:
    """A payload for nobody is sent to one reader, and one without a time for ever."""
    *first, readers, lease = request
    original(sender, *first, max(1, readers), lease if lease is None or lease > 0 else None)


@wrong_input("transfer/any-length", "sender:Sender.send", "transfer.send.seq_len", "transfer.send.empty_table")
def any_length(original: Any, sender: Any, request_id: str, kv: Any, block_ids: Any, seq_len: int, *how: Any) -> None:
    """A sequence without tokens is sent as one of one token."""
    original(sender, request_id, kv, block_ids or [0], max(1, seq_len), *how)


@wrong_input("transfer/length-believed", "receiver:Receiver._valid_tokens", "transfer.send.seq_len_huge")
def length_believed(original: Any, receiver: Any, payload: Any, metadata: Any) -> int:
    """As many rows are said to hold KV as the metadata has tokens."""
    return metadata["seq_len"]


@wrong_input("transfer/branches-alike", "manager:TransferManager.receive_branches", "transfer.branches.all")
def branches_alike(original: Any, manager: Any, branches: Any, *how: Any) -> Any:
    """Every branch is given the first one's payload."""
    given = original(manager, branches, *how)
    first = next(iter(given.values()))
    return dict.fromkeys(given, first)


@wrong_input("transfer/branches-or-none", "manager:TransferManager.receive_branches", "transfer.branches.one_missing")
def branches_or_none(original: Any, manager: Any, branches: Any, *how: Any) -> Any:
    """Where one branch does not come, none is given."""
    given = original(manager, branches, *how)
    whole = all(delivery.outcome is Outcome.HIT for delivery in given.values())
    return given if whole else dict.fromkeys(given, Delivery(Outcome.MISS))


@wrong_input("transfer/delivery-lost-in-clean-up", "manager:TransferManager._handed_over", "transfer.failure.cannot_let_go")
def delivery_lost_in_clean_up(original: Any, manager: Any, request_id: str, delivery: Delivery, endpoint: Any) -> Delivery:
    """A payload that cannot be let go of is not delivered either."""
    if delivery.outcome is Outcome.HIT:
        try:
            manager._done(request_id, endpoint)
        except Exception as error:  # noqa: BLE001 (it is the wrong answer)
            return Delivery(Outcome.FAILED, reason=str(error))
    return delivery


@wrong_input("transfer/failed-copy-is-done", "receiver:Receiver._failure", "transfer.failure.copy_fails")
def failed_copy_is_done(original: Any, receiver: Any, request_id: str, error: Exception) -> Delivery:
    """A copy that failed is told as an empty hit."""
    failed = original(receiver, request_id, error)
    return replace(failed, outcome=Outcome.HIT)


@wrong_input("transfer/owner-unchecked", "codec:PayloadCodec._check_owner", "transfer.failure.strangers_payload")
def owner_unchecked(original: Any, codec: Any, request_id: str, metadata: Any) -> None:
    """Whose payload it is, is not asked."""


@wrong_input("transfer/always-waits", "receiver:Receiver._await", "transfer.failure.zero_timeout")
def always_waits(original: Any, receiver: Any, look: Any, timeout: float, unwanted: Any) -> Any:
    """A receive that may not wait does not look either."""
    return original(receiver, look, timeout, unwanted) if timeout > 0 else None


@wrong_input("transfer/floor-ignored", "memory_floor:MemoryFloor.leaves_room", "transfer.prefetch.memory_floor")
def floor_ignored(original: Any, floor: Any, device: Any) -> bool:
    """A prefetch goes to a full device too."""
    return True


@wrong_input("transfer/receive-keeps-prefetch", "manager:TransferManager.receive", "transfer.prefetch.foreground_takes_over")
def receive_keeps_prefetch(original: Any, manager: Any, *request: Any, **how: Any) -> Delivery:
    """A receive leaves the request's prefetch as it is."""
    forget, manager._prefetches.abort = manager._prefetches.abort, lambda _request_id: None
    try:
        return original(manager, *request, **how)
    finally:
        manager._prefetches.abort = forget


@wrong_input("transfer/branch-by-branch", "manager:TransferManager.receive_branches", "transfer.branches.share_timeout")
def branch_by_branch(original: Any, manager: Any, branches: Any, endpoint: Any, timeout: float) -> Any:
    """Each branch may take the whole timeout."""
    return {branch: manager.receive(sent_as, endpoint, timeout) for branch, sent_as in branches.items()}


@wrong_input("transfer/done-told-to-own", "manager:TransferManager._done", "transfer.endpoint.done_named")
def done_told_to_own(original: Any, manager: Any, request_id: str, endpoint: Any) -> None:
    """Whoever the request named, the manager's own sender is told that its payload was received."""
    original(manager, request_id, manager.endpoint)


@wrong_input("transfer/lease-behind-another", "leases:Leases.begin", "transfer.lease.each")
def lease_behind_another(original: Any, leases: Any, name: str, seconds: float) -> None:
    """A lease ends no sooner than those that were begun before it."""
    original(leases, name, seconds + len(leases.names()) * 1e6)


@wrong_input("transfer/lease-of-first-shard", "sender:Sender._expire", "transfer.lease.every_shard")
def lease_of_first_shard(original: Any, sender: Any, request_id: str) -> None:
    """At the end of a lease the first receiver rank's shard is freed."""
    shard = sender._addresses.sent(request_id)[0]
    sender._connector.discard(*sender._addresses.stages(), shard.key)


@wrong_input("transfer/readers-of-first-shard", "sender:Sender._publish", "transfer.readers.every_shard")
def readers_of_first_shard(original: Any, sender: Any, request_id: str, shard: Any, data: Any, readers: int) -> None:
    """Only the first receiver rank's shard has the readers asked for; the others have one."""
    original(sender, request_id, shard, data, readers if shard.piece.target_rank == 0 else 1)


@wrong_input("transfer/rejected-and-fetched", "manager:TransferManager.reject", "transfer.reject.tracked")
def rejected_and_fetched(original: Any, manager: Any, request_id: str, endpoint: Any = None) -> None:
    """A request that is turned down keeps its prefetch."""
    manager._done(request_id, endpoint)


@wrong_input("transfer/live-while-whole", "sender:Sender._is_live", "transfer.send.live_shard")
def live_while_whole(original: Any, sender: Any, request_id: str) -> bool:
    """An id is free once any part of its payload was read."""
    stages = sender._addresses.stages()
    return all(sender._connector.holds(*stages, shard.key) for shard in sender._addresses.sent(request_id))


@wrong_input("transfer/floor-above", "memory_floor:MemoryFloor.leaves_room", "transfer.prefetch.memory_floor_edge")
def floor_above(original: Any, floor: Any, device: Any) -> bool:
    """More than the configured share must be free."""
    return floor._share <= 0 or floor._free(device) > floor._share
