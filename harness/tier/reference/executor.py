"""Forwards over pages, and copies of pages between the tiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from harness.core.threads import one_thread
from harness.tier.protocol import Tier
from harness.tier.reference.cache import PagedCache
from harness.tier.reference.config import GROUPS
from harness.tier.reference.identity import PLAIN, Identity
from harness.tier.reference.masks import Masks
from harness.tier.reference.network import Network
from harness.tier.reference.pool import Pool, copy_pages
from harness.tier.reference.streams import Event, Streams, known, put, synchronize


@dataclass(frozen=True)
class Work:
    """One forward: `ids` from position `start` on, the last of which gives the next token.

    `tables`, by group, name the device pages of positions 0 .. start + len(ids); a sliding group's pages before its window are not read
    and may be any. The first `media_tokens` ids of a prompt with media are PLACEHOLDER. `loads` are waited for layer by layer.
    """

    ids: tuple[int, ...]
    start: int
    tables: Mapping[str, Sequence[int]]
    spoken: Identity = PLAIN
    loads: Sequence[Copy] = ()
    want_logits: bool = False


@dataclass(frozen=True)
class Taken:
    """What a forward gave: the likeliest next token, f32[vocabulary] on the CPU that it was chosen from, if wanted.

    `finite`: neither they nor any key or value that was written is NaN or infinite.
    """

    token: int
    logits: torch.Tensor | None
    finite: bool


@dataclass
class Pending:
    """A forward that was launched."""

    event: Event = field(init=False)
    want_logits: bool
    logits: torch.Tensor = field(init=False)
    token: torch.Tensor = field(init=False)
    finite: torch.Tensor = field(init=False)

    def done(self) -> bool:
        """Whether it has run. Waits for nothing."""
        return self.event.done()

    def take(self) -> Taken:
        """Wait for it; what it gave."""
        self.event.wait()
        return Taken(int(self.token), self.logits.cpu() if self.want_logits else None, bool(self.finite))


@dataclass(frozen=True)
class Copy:
    """A copy of pages that was submitted: by group, an event for each of the pieces, in order. `failed` says why nothing is copied."""

    pieces: Mapping[str, tuple[Event, ...]]
    failed: str | None = None

    def done(self) -> bool:
        """Whether all of it is copied, or none will be. Waits for nothing."""
        return all(piece.done() for pieces in self.pieces.values() for piece in pieces)

    def finish(self) -> None:
        """Wait for what has begun of it: on a card it runs beside the steps, and how far it has come is no matter of chance then."""
        for pieces in self.pieces.values():
            for piece in pieces:
                if piece.started():
                    piece.wait()

    def wait(self) -> None:
        """Return once it is done, whatever its lag."""
        for pieces in self.pieces.values():
            for piece in pieces:
                piece.wait()


class Executor:
    """One network, a pool of device pages and one of host pages, and the streams of one device."""

    def __init__(self, network: Network, page: int, device_pages: int, host_pages: int, device: torch.device) -> None:
        self.network, self.page, self.device = network, page, device
        self.streams = Streams(device)
        card = device.type == "cuda"
        self.pools = {
            Tier.DEVICE: Pool(network.config, device_pages, page, device),
            Tier.HOST: Pool(network.config, host_pages, page, torch.device("cpu"), pinned=card and host_pages > 0),
        }
        self._masks = Masks(network.config, device)
        self._failing: set[str] = set()
        # The streams do not wait for the one that made the pools.
        synchronize(device)

    def forward(self, work: Work) -> Pending:
        """Launch it on the compute stream; nothing is waited for. ValueError for a table that is too short or work without tokens."""
        end = work.start + len(work.ids)
        short = [group for group in GROUPS if len(work.tables[group]) * self.page < end]
        if short or not work.ids:
            raise ValueError(f"work on {len(work.ids)} tokens from {work.start}: the tables of {short} do not reach its end")
        pending = Pending(work.want_logits)
        pending.event = self.streams.compute.submit(partial(self.compute, work, pending))
        return pending

    def compute(self, work: Work, pending: Pending) -> None:
        """The forward itself, on the current stream."""
        with one_thread():
            tables = {group: self._put(work.tables[group]) for group in GROUPS}
            loads = [copy.pieces for copy in work.loads if copy.pieces]
            cache = PagedCache(self.network.config, self.pools[Tier.DEVICE], tables, work.start, len(work.ids), loads, self.streams.compute)
            pending.logits = self.network.run(
                self._embed(work.ids, work.start, work.spoken),
                cache,
                torch.arange(work.start, cache.end, device=self.device),
                self._masks.of(work.start, len(work.ids)),
            )
            pending.token = pending.logits.argmax()
            pending.finite = torch.isfinite(cache.sum + pending.logits.sum())

    def store(self, pairs: Mapping[str, Sequence[tuple[int, int]]], after: Event) -> Copy:
        """Copy (device page, host page) pairs of each group on the store stream, once `after` of the compute stream is reached."""
        return self._copy("store", pairs, after)

    def load(self, pairs: Mapping[str, Sequence[tuple[int, int]]], after: Event) -> Copy:
        """Copy (host page, device page) pairs of each group on the load stream, piece by piece, once `after` is reached.

        The first pieces of all groups come first, as their layers do.
        """
        return self._copy("load", pairs, after)

    def compute_event(self) -> Event:
        """Everything that was launched so far."""
        return self.streams.compute.last

    def tick(self) -> None:
        """The clock of the lags moves on by one."""
        self.streams.tick()

    def lag(self, op: str, ticks: int) -> None:
        """From now on copies of `op`, `store` or `load`, start `ticks` ticks late, or when somebody waits for them."""
        self.streams.lag(op, ticks)

    def fail_next(self, op: str) -> None:
        """The next copy of `op` copies nothing."""
        known(op)
        self._failing.add(op)

    def read(self, tier: Tier, page: int) -> torch.Tensor:
        """f[layers, 2, page, KV heads, head dim] of a page, as it lies there: a view."""
        synchronize(self.device)
        return self.pools[tier].kept[page]

    def write(self, tier: Tier, page: int, content: torch.Tensor) -> None:
        """Overwrite a page."""
        synchronize(self.device)
        self.pools[tier].kept[page].copy_(content)
        synchronize(self.device)

    def poison(self, tier: Tier, pages: Iterable[int], behind: int = 0) -> None:
        """NaN in the pages, from token `behind` of each on."""
        synchronize(self.device)
        self.pools[tier].fill(pages, torch.nan, behind)
        synchronize(self.device)

    def anew(self, ids: Sequence[int], spoken: Identity, new_tokens: int, chunk: int) -> tuple[list[int], torch.Tensor]:
        """The new tokens of a prompt and f32[new_tokens, vocabulary], by the same chunks over transformers' own contiguous cache."""
        cache, start, logits = self.network.contiguous(), 0, []
        with one_thread(), torch.inference_mode():
            for start in range(0, len(ids), chunk):
                last = self.network.run_contiguous(self._embed(ids[start : start + chunk], start, spoken), cache)
            logits.append(last)
            while len(logits) < new_tokens:
                token = int(logits[-1].argmax())
                logits.append(self.network.run_contiguous(self._embed([token], len(ids) + len(logits) - 1, spoken), cache))
        return [int(row.argmax()) for row in logits], torch.stack(logits).cpu()

    def close(self) -> None:
        """Let go of the pools, after what is under way. May be called twice."""
        self.streams.close()
        self.pools = {}

    def _copy(self, op: str, pairs: Mapping[str, Sequence[tuple[int, int]]], after: Event) -> Copy:
        if op in self._failing:
            self._failing.discard(op)
            return Copy({}, f"the {op} of {sum(map(len, pairs.values()))} pages was made to fail")
        tiers = (Tier.DEVICE, Tier.HOST) if op == "store" else (Tier.HOST, Tier.DEVICE)
        source, target = (self.pools[tier] for tier in tiers)
        stream, lag = getattr(self.streams, op), self.streams.lags[op]
        pieces: dict[str, tuple[Event, ...]] = dict.fromkeys(pairs, ())
        for piece in range(self.network.config.pieces):
            for group, places in pairs.items():
                sources, targets = [pair[0] for pair in places], [pair[1] for pair in places]
                copy = partial(copy_pages, source, sources, target, targets, piece)
                pieces[group] += (stream.submit(copy, (after,), lag),)
        return Copy(pieces)

    def _embed(self, ids: Sequence[int], start: int, spoken: Identity) -> torch.Tensor:
        media = min(len(ids), max(0, self.network.media_tokens - start)) if spoken.media is not None else 0
        return self.network.embed(self._put(ids), media, spoken, start)

    def _put(self, numbers: Sequence[int]) -> torch.Tensor:
        """i64[n] on the device."""
        return put(torch.tensor(numbers, dtype=torch.int64), self.device)
