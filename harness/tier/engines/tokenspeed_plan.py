"""What the scheduler of TokenSpeed is told and what it says, in this project's words.

Pages of both groups are numbered in one pool each tier. Number 0 is the scheduler's null page: a table has it where a sliding group has let
go, nothing is written to it, and the pools have it on top of the pages that the options ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from harness.tier.engines.tokenspeed_options import Options

NULL = 1
"""Null pages of a pool."""
HELD = ("device_pages", "host_pins", "snapshot_pages", "waiting", "running")
"""What `Planner.held` counts."""


class Kind(str, Enum):
    """What a copy is for."""

    WRITE_BACK = "write_back"
    LOAD_BACK = "load_back"
    SNAPSHOT = "snapshot"
    """What a retracted request had on the device alone."""
    RESTORE = "restore"


@dataclass(frozen=True)
class Transfer:
    """One copy between the tiers, which the scheduler knows by `number` until it is told that it is done.

    `pairs`, by group, are (from, to): a page of the device and one of the host, or the other way round. Snapshots lie behind the host's.
    `pinned`: the source stays as it is until then; otherwise this very step may write it anew.
    """

    kind: Kind
    number: int
    pairs: Mapping[str, Sequence[tuple[int, int]]]
    pinned: bool

    def targets(self) -> Iterator[int]:
        """The pages that it writes."""
        return (target for pairs in self.pairs.values() for _, target in pairs)


@dataclass(frozen=True)
class Extent:
    """`length` tokens of one request to compute from position `start` on. `last`: a new token comes of it.

    `tables`: by group the pages of positions from 0 on. `admitted`: tokens of the prompt that it need not compute, where it begins a
    prefill; None elsewhere.
    """

    request: str
    start: int
    length: int
    last: bool
    tables: Mapping[str, Sequence[int]]
    admitted: int | None


@dataclass(frozen=True)
class Plan:
    """One step. `copies`: pairs of device pages, (from, to), to be copied before anything is computed. `refused`: requests, and why."""

    copies: tuple[tuple[int, int], ...]
    transfers: tuple[Transfer, ...]
    extents: tuple[Extent, ...]
    refused: Mapping[str, str]


class Planner:
    """The released scheduler. `windows`: by group how many positions a token attends to, None for all before it."""

    def __init__(self, options: Options, windows: Mapping[str, int | None]) -> None:
        import tokenspeed_scheduler

        self._api = tokenspeed_scheduler
        self._groups = list(windows)
        self._host_pages = options.host_pages + NULL
        self.snapshots = options.device_pages
        self._scheduler = tokenspeed_scheduler.Scheduler(_config(tokenspeed_scheduler, options, windows, self.snapshots))
        self._lengths: dict[str, int] = {}

    @property
    def host_pages(self) -> int:
        """Pages of the host's pool, null page and snapshots included."""
        return self._host_pages + self.snapshots + NULL

    def submit(self, request: str, tokens: Sequence[int], new: int) -> None:
        """Queue it. ValueError where the scheduler refuses it."""
        spec = self._api.RequestSpec()
        spec.request_id, spec.tokens, spec.max_new_tokens = request, list(tokens), new
        self._scheduler.submit_requests([spec])
        self._lengths[request] = len(tokens)

    def plan(self) -> Plan:
        """The next step, to be carried out whole."""
        raw = self._scheduler.next_execution_plan()
        copies = tuple((int(a), int(b)) for pairs in raw.pages_to_copy.values() for a, b in pairs)
        transfers = tuple(t for operation in raw.cache for t in self._transfers(operation))
        extents = tuple(e for batch in raw.forward for e in self._extents(batch))
        return Plan(copies, transfers, extents, {refused.request_id: refused.detail for refused in raw.aborts})

    def advance(self, news: Sequence[Any]) -> None:
        """Tell what has come to pass."""
        event = self._api.ExecutionEvent()
        for one in news:
            event.add_event(one)
        if news:
            self._scheduler.advance(event)

    def computed(self, extent: Extent, token: int | None) -> Any:
        """The news that `extent` was computed; `token` came of it."""
        event = self._api.ForwardEvent.ExtendResult()
        event.request_id, event.tokens = extent.request, [] if token is None else [token]
        if token is not None:
            self._lengths[extent.request] += 1
        return event

    def finished(self, request: str) -> Any:
        """The news that it has all its tokens."""
        return self._ending(self._api.ForwardEvent.Finish(), request)

    def aborted(self, request: str) -> Any:
        """The news that nobody wants it any more."""
        return self._ending(self._api.ForwardEvent.Abort(), request)

    def copied(self, transfer: Transfer) -> Any:
        """The news that it is done."""
        cache = self._api.Cache
        done = {
            Kind.WRITE_BACK: cache.WriteBackDoneEvent,
            Kind.LOAD_BACK: cache.LoadBackDoneEvent,
            Kind.SNAPSHOT: cache.SnapshotDoneEvent,
            Kind.RESTORE: cache.RestoreDoneEvent,
        }
        event = done[transfer.kind]()
        event.op_id = transfer.number
        return event

    def most_tokens(self) -> int:
        """Of one request, prompt and new ones."""
        return self._scheduler.max_single_request_tokens()

    def clear(self, *, device_only: bool) -> bool:
        """Forget what is kept, on the device or everywhere; False: it would not."""
        return self._scheduler.clear_l1_cache() if device_only else self._scheduler.clear_cache()

    def close(self) -> None:
        """Let go of the scheduler."""
        del self._scheduler

    def held(self) -> dict[str, int]:
        """What requests and copies hold."""
        scheduler = self._scheduler
        counts = (
            scheduler.active_lcm_blocks(),
            scheduler.host_pool_pinned_blocks(),
            self.snapshots - scheduler.snapshot_pool_free_blocks(),
            scheduler.waiting_size(),
            scheduler.prefilling_size() + scheduler.decoding_size(),
        )
        return dict(zip(HELD, counts, strict=True))

    def _ending(self, event: Any, request: str) -> Any:
        event.request_id = request
        self._lengths.pop(request, None)
        return event

    def _extents(self, batch: Any) -> Iterator[Extent]:
        prefills = batch.num_extends()
        for row, request in enumerate(batch.request_ids):
            tables = {group: rows[row] for group, rows in batch.block_tables.items()}
            length = batch.input_lengths[row]
            if row < prefills:
                start = batch.extend_prefix_lens[row]
                yield Extent(request, start, length, start + length == batch.prefill_lengths[row], tables, start)
            else:
                yield Extent(request, self._lengths[request] - length, length, True, tables, None)

    def _transfers(self, operation: Any) -> Iterator[Transfer]:
        kind = _KINDS[type(operation).__name__]
        for row, number in enumerate(operation.op_ids):
            sources, targets = list(operation.src_pages[row]), list(operation.dst_pages[row])
            if kind is Kind.SNAPSHOT:
                targets = [self._host_pages + page for page in targets]
            if kind is Kind.RESTORE:
                pool = self._api.Cache.HostTier.SnapshotPool.value
                tiers = operation.source_tiers[row]
                sources = [page + (self._host_pages if tier == pool else 0) for page, tier in zip(sources, tiers, strict=True)]
            pinned = operation.source_pinned[row] if kind is Kind.WRITE_BACK else kind is not Kind.SNAPSHOT
            pairs: dict[str, list[tuple[int, int]]] = {}
            for group, source, target in zip(operation.group_ids[row], sources, targets, strict=True):
                pairs.setdefault(self._groups[group], []).append((source, target))
            yield Transfer(kind, number, pairs, pinned)


_KINDS = {"WriteBackOp": Kind.WRITE_BACK, "LoadBackOp": Kind.LOAD_BACK, "SnapshotOp": Kind.SNAPSHOT, "RestoreOp": Kind.RESTORE}


def _config(api: Any, options: Options, windows: Mapping[str, int | None], snapshots: int) -> Any:
    config = api.SchedulerConfig()
    config.num_device_pages = options.device_pages + NULL
    config.num_host_pages = options.host_pages + NULL if options.host_pages else 0
    config.disable_l2_cache = not options.host_pages
    config.prefix_granularity = options.page
    config.max_scheduled_tokens, config.max_batch_size = options.chunk, options.max_running
    config.num_snapshot_pages, config.max_retracted_requests = snapshots + NULL, options.max_running
    config.debug_force_retraction_interval = options.retract_every
    config.cache_groups = [_group(api, options, name, window) for name, window in windows.items()]
    return config


def _group(api: Any, options: Options, name: str, window: int | None) -> Any:
    total = options.device_pages + NULL
    given: dict[str, Any] = {"transfer_policy": api.CacheTransferPolicy.FullSuffix}
    if window is None:
        return api.CacheGroupConfig(name, options.page, total, api.AttnKind.Full, **given)
    # One page more than the model attends to: a block is computed from its first token on, wherever in it the scheduler's extent begins.
    return api.CacheGroupConfig(name, options.page, total, api.AttnKind.SlidingWindow, sliding_window_tokens=window + options.page, **given)
