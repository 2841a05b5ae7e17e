"""Carries out what TokenSpeed's scheduler plans: with the network, the pools and the streams of the embedded server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.tier.engines.tokenspeed_plan import Extent, Kind, Plan, Transfer
from harness.tier.protocol import Tier
from harness.tier.reference.executor import Copy, Executor, Pending, Work

TO_DEVICE = (Kind.LOAD_BACK, Kind.RESTORE)


@dataclass(frozen=True)
class Prompted:
    """What a request has to compute: its tokens so far, of which the first `prompt` are its prompt's."""

    tokens: Sequence[int]
    prompt: int
    want_logits: bool


@dataclass(frozen=True)
class Launched:
    """An extent on its way, block by block; the last block has the token."""

    extent: Extent
    blocks: tuple[Pending, ...]


class Carrier:
    """Keeps the order that the plan implies: copies before what they are made of is overwritten, loads before what reads them."""

    def __init__(self, executor: Executor, page: int) -> None:
        self._executor, self._page = executor, page
        self._transfers: dict[int, tuple[Transfer, Copy]] = {}

    @property
    def copies(self) -> int:
        """How many are under way."""
        return len(self._transfers)

    def carry(self, plan: Plan, requests: Mapping[str, Prompted]) -> list[Launched]:
        """Launch one step; waits for nothing but for copies whose pages this very step writes anew."""
        # A plan gives a page on at once: what one group lets go of may be what another's is copied to, or loaded to. So all that is copied
        # is read before any page is written. The step before is taken in: nothing on the compute stream is left to write a source.
        contents = [self._executor.read(Tier.DEVICE, source).clone() for source, _ in plan.copies]
        for transfer in plan.transfers:
            if transfer.kind not in TO_DEVICE:
                self._submit(transfer)
        for (_, target), content in zip(plan.copies, contents, strict=True):
            self._executor.write(Tier.DEVICE, target, content)
        for transfer in plan.transfers:
            if transfer.kind in TO_DEVICE:
                self._submit(transfer)
        return [self._launch(extent, requests[extent.request]) for extent in plan.extents if extent.request in requests]

    def landed(self, *, wait: bool = False) -> list[Transfer]:
        """The copies that are done since the last call; with `wait`, all that are under way. RuntimeError for one that failed."""
        found = []
        for transfer, copy in list(self._transfers.values()):
            if wait:
                copy.wait()
            if copy.failed is not None:
                raise RuntimeError(f"{transfer.kind.value} {transfer.number} failed: {copy.failed}; the scheduler has no word for that")
            if copy.done():
                found.append(transfer)
                del self._transfers[transfer.number]
        return found

    def _submit(self, transfer: Transfer) -> None:
        go = self._executor.load if transfer.kind in TO_DEVICE else self._executor.store
        copy = go(transfer.pairs, self._executor.compute_event())
        self._transfers[transfer.number] = (transfer, copy)
        if not transfer.pinned:
            copy.wait()

    def _loads(self) -> Iterator[tuple[Transfer, Copy]]:
        return (both for both in self._transfers.values() if both[0].kind in TO_DEVICE)

    def _launch(self, extent: Extent, request: Prompted) -> Launched:
        """Blocks end at multiples of the page, so that the numbers of a position are the same wherever the scheduler cuts."""
        end = extent.start + extent.length
        pages = {page for table in extent.tables.values() for page in table}
        loads = [copy for transfer, copy in self._loads() if not pages.isdisjoint(transfer.targets())]
        blocks = []
        for first, behind in blocks_of(extent.start, end, request.prompt, self._page):
            covered = -(-behind // self._page)
            work = Work(
                ids=tuple(request.tokens[first:behind]),
                start=first,
                tables={group: table[:covered] for group, table in extent.tables.items()},
                loads=loads,
                want_logits=request.want_logits and extent.last and behind == end,
            )
            blocks.append(self._executor.forward(work))
        return Launched(extent, tuple(blocks))


def blocks_of(start: int, end: int, prompt: int, page: int) -> Iterator[tuple[int, int]]:
    """(first, behind) of each forward that computes positions `start` to `end`.

    The prompt's are computed page by page, each from its first token on; those behind the prompt one by one, as they were decoded.
    """
    first = start // page * page if start < prompt else start
    while first < end:
        behind = min(first // page * page + page, end, prompt) if first < prompt else first + 1
        yield first, behind
        first = behind
