"""Aborts, ids and the end of transfers."""

from __future__ import annotations

from typing import Any

from harness.transfer.faults.register import catalogued
from harness.transfer.reference.errors import TransferError


@catalogued(
    "late-completion-crash",
    "prefetch:PrefetchTable._run",
    claims=["transfer.abort.late_end"],
    source="vllm#53079, #50565, #25067; sglang-omni#1773 (review: cancel kills the stage)",
    raises=[TransferError],
)
def late_completion_crash(original: Any, table: Any, job: Any) -> None:
    """The end of a transfer whose request was aborted meanwhile raises, and the worker is gone."""
    original(table, job)
    if job.dropped:
        raise TransferError(f"request {job.request_id!r} is not known")


@catalogued(
    "abort-frees-under-write",
    "prefetch:PrefetchTable._drop",
    claims=["transfer.abort.landing"],
    source="sglang#24527",
)
def abort_frees_under_write(original: Any, table: Any, request_id: str) -> None:
    """An abort gives the landing buffer back while the copy still writes there."""
    job = table._tracked.get(request_id)
    original(table, request_id)
    if job is not None:
        job.berth.give_back()


@catalogued(
    "abort-leaks-blocks",
    "landing:Berth.give_back",
    claims=["transfer.abort.frees"],
    source="vllm#46283, #46289",
)
def abort_leaks_blocks(original: Any, berth: Any) -> None:
    """What a transfer landed in is not given back where nobody consumes it."""


@catalogued(
    "abort-leaks-staging",
    "manager:TransferManager._turn_down",
    claims=["transfer.abort.staging", "transfer.lifecycle.abort_drops_result"],
    source="vllm-omni#4414, #4349",
)
def abort_leaks_staging(original: Any, manager: Any, request_id: str, endpoint: Any) -> None:
    """The sender is not told that its reader is gone."""


@catalogued(
    "reject-strands-sender",
    "manager:TransferManager.reject",
    claims=["transfer.reject.told"],
    source="vllm#41269",
)
def reject_strands_sender(original: Any, manager: Any, request_id: str, endpoint: Any = None) -> None:
    """A receiver that turns a request down does so for itself."""
    manager._prefetches.abort(request_id)


@catalogued(
    "prefetch-not-cancelled",
    "prefetch:PrefetchTable._cancel",
    claims=["transfer.lifecycle.abort_not_fetched"],
    source="vllm-omni#4772 (review: cancel() never called), sglang#16369",
)
def prefetch_not_cancelled(original: Any, table: Any, job: Any) -> bool:
    """A dropped request stays in the worker's queue and is fetched all the same."""
    return False


@catalogued(
    "prefetch-dedup-stale",
    "prefetch:PrefetchTable._tracks",
    claims=["transfer.lifecycle.reused_id"],
    source="vllm-omni#4772 (review shows the skip; fault inferred)",
)
def prefetch_dedup_stale(original: Any, table: Any, request_id: str) -> bool:
    """The set of enqueued ids is never pruned, so a reused id is taken for one under way."""
    enqueued = vars(table).setdefault("enqueued", set())
    known = request_id in enqueued or original(table, request_id)
    enqueued.add(request_id)
    return known


@catalogued(
    "abort-by-prefix",
    "prefetch:PrefetchTable.abort",
    claims=["transfer.lifecycle.abort_leaves_others"],
    source="sglang#24845 (comment)",
)
def abort_by_prefix(original: Any, table: Any, request_id: str) -> Any:
    """An abort reaches every request whose id begins alike."""
    asked = [original(table, tracked) for tracked in list(table._tracked) if tracked.startswith(request_id)]
    return asked[0] if asked else None


@catalogued(
    "orphan-id-growth",
    "prefetch:PrefetchTable.abort",
    claims=["transfer.abort.unknown_ids"],
    source="sglang#39428",
)
def orphan_id_growth(original: Any, table: Any, request_id: str) -> Any:
    """An abort of an id that nobody knows makes an entry for it, which nobody removes."""
    asked = original(table, request_id)
    table._copies += asked is None
    return asked


@catalogued(
    "lost-wakeup",
    "prefetch:Prefetch.ended",
    claims=["transfer.prefetch.consume_late"],
    source="TensorRT-LLM#15737",
)
def lost_wakeup(original: Any, job: Any) -> bool:
    """The end of a transfer is signalled to whoever waits at that moment, and to nobody who comes later."""
    if original(job):
        return id(job) in _AWAITED
    _AWAITED.add(id(job))
    return False


_AWAITED: set[int] = set()
"""Transfers that somebody asked after while they were under way."""
