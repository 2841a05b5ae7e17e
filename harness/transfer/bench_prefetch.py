"""How much of a fetch a prefetch hides behind compute, and how near its copy comes to what the bus can do.

One engine, both sides in this process. A fetch that begins when its request needs it hides nothing: its time is what there is to hide.
Where the engine holds a payload for several readers, it is sent once and fetched again and again: a sender is somebody else's process, and
its copies would leave the receiver's caches cold.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.capabilities import Support
from harness.core.clock import SystemClock
from harness.core.registry import Selection
from harness.transfer.protocol import Delivery, Endpoint, KVLayout, Outcome, Topology, TransferConfig, TransferManager

WHERE = Endpoint("127.0.0.1", 50051)
TIMEOUT = 60.0
"""Seconds that a fetch may wait for its sender, which has always sent before."""
COMPUTE = 1.5
"""Compute lasts this many times as long as what it is to hide."""
LAYERS, BLOCK_SIZE, HEADS, HEAD_DIM = 32, 16, 8, 128
"""Of the payload: an 8B model's KV, 4 KiB a token and layer in bfloat16."""


@dataclass
class Hidden:
    """What one engine took for one payload. Seconds are medians over the rounds.

    `fetch`: of one that nothing hides. `waited`: what a request still waited after compute; `share` is the median of 1 - waited / fetch
    within a round. `prefetch`: of one in the background, from its start to its end; None where the engine's usage does not tell. On a
    card `pinned` is the median time of a plain pinned copy of the same bytes, and `of_pinned` the median of pinned / prefetch within a
    round, or of pinned / fetch without a prefetch.
    """

    engine: str
    device: str
    size: int
    rounds: int
    fetch: float
    waited: float
    share: float
    prefetch: float | None = None
    pinned: float | None = None
    of_pinned: float | None = None
    compute: float | None = None
    """Of the compute that was to hide the fetch; None in records from before it was kept."""


def hidden(selection: Selection, size: int, device: torch.device, rounds: int = 9) -> Hidden:
    """Measure one transfer engine, with a payload of about `size` bytes to `device`."""
    profile = next(p for p in selection.spec.profiles.values() if p.device == device.type)
    with ExitStack() as opened:
        engine = selection.spec.load().build(selection.config(profile, 0), SystemClock())
        opened.callback(engine.close)
        keeps = selection.spec.capabilities["readers"].support is Support.FULL
        pair = Pair(engine, size, device, keeps, opened)
        pinned = PlainCopy(pair.size, torch.device("cpu"), device) if device.type == "cuda" else None
        for _ in range(2):
            pair.fetch(0.0)
        rows, computes = [], []
        for _ in range(rounds):
            fetch, _ = pair.fetch(0.0)
            whole, waited = pair.fetch(COMPUTE * fetch)
            computes.append(whole - waited)
            rows.append((fetch, waited, pair.prefetch(), pinned.seconds() if pinned else None))
    fetches, waits, prefetches, copies = zip(*rows, strict=True)
    made = Hidden(selection.label, str(device), pair.size, rounds, statistics.median(fetches), statistics.median(waits), 0.0)
    made.compute = statistics.median(computes)
    made.share = statistics.median(1 - waited / fetch for fetch, waited, _, _ in rows)
    if None not in prefetches:
        made.prefetch = statistics.median(prefetches)
    if pinned:
        made.pinned = statistics.median(copies)
        made.of_pinned = statistics.median(copy / (prefetch or fetch) for fetch, _, prefetch, copy in rows)
    return made


class Pair:
    """A sender and a receiver over one connector, and the payload that goes between them, from `source` to `device`."""

    def __init__(
        self, engine: Any, size: int, device: torch.device, keeps: bool, opened: ExitStack, source: torch.device | None = None
    ) -> None:
        layout = KVLayout(LAYERS, BLOCK_SIZE, HEADS, HEAD_DIM, torch.bfloat16)
        block_bytes = 2 * LAYERS * BLOCK_SIZE * HEADS * HEAD_DIM * 2
        blocks = max(1, size // block_bytes)
        self.size, self._device = blocks * block_bytes, device
        generator = torch.Generator().manual_seed(0)
        shape = (2, blocks, BLOCK_SIZE, HEADS, HEAD_DIM)
        drawn = (torch.randn(shape, generator=generator, dtype=torch.float32).to(torch.bfloat16) for _ in range(LAYERS))
        self._kv = [layer.to(source) if source else layer for layer in drawn]
        self._block_ids, self._tokens = list(range(blocks)), blocks * BLOCK_SIZE
        connector = engine.connector()
        opened.callback(connector.close)
        config = TransferConfig(layout, receive_timeout=TIMEOUT)
        sending = TransferConfig(layout, receive_timeout=TIMEOUT, sends=True, receives=False, async_prefetch=False)
        self._sender: TransferManager = engine.deploy(Topology(), connector, sending)
        self._receiver: TransferManager = engine.deploy(Topology(), connector, config)
        self._endpoint = connector.endpoint or WHERE
        self._keeps, self._number = keeps, 0

    def fetch(self, compute: float) -> tuple[float, float]:
        """(seconds from the start to the delivery, seconds of it that the request waited after `compute` seconds of compute)."""
        request, began = self.start()
        busy(compute, self._device)
        computed = time.perf_counter()
        delivery = self._receiver.consume(request)
        ended = time.perf_counter()
        self._check(delivery)
        return ended - began, ended - computed

    def prefetch(self) -> float | None:
        """Seconds from the start to the end of the transfer in the background, as usage tells it; None where it does not."""
        request, began = self.start()
        told = self.tells()
        while told and self.copies() and time.perf_counter() - began < TIMEOUT:
            time.sleep(20e-6)  # not in the worker's way
        ended = time.perf_counter()
        self.end(request)
        return ended - began if told else None

    def tells(self) -> bool:
        """Whether the engine's usage says when a copy has ended."""
        return "copies" in self._receiver.usage()

    def copies(self) -> int:
        """Copies under way."""
        return self._receiver.usage()["copies"]

    def end(self, request: str) -> None:
        """Consume what was started, and look at it."""
        self._check(self._receiver.consume(request))

    def start(self) -> tuple[str, float]:
        """Begin to fetch: (the request, when)."""
        request = "bench" if self._keeps else f"bench-{self._number}"
        if not self._keeps:
            self._sender.send(request, self._kv, self._block_ids, self._tokens)
        elif not self._number:
            # The second reader never comes, so that the payload stays.
            self._sender.send(request, self._kv, self._block_ids, self._tokens, readers=2)
        self._number += 1
        began = time.perf_counter()
        self._receiver.start_prefetch(request, self._endpoint, self._device if self._device.type == "cuda" else None)
        return request, began

    def _check(self, delivery: Delivery) -> None:
        if delivery.outcome is not Outcome.HIT or delivery.payload is None:
            raise RuntimeError(f"a fetch ended as {delivery.outcome.name} ({delivery.reason}); nothing of it is timed")
        last = delivery.payload.values[-1]
        if self._number == 1 and not torch.equal(last.cpu(), self._kv[-1][1].flatten(0, 1).cpu()):
            raise RuntimeError("a fetch gave other values than were sent; nothing of it is timed")


class PlainCopy:
    """What the bus can do: one copy between two devices, into memory that is there; from the host, of pinned memory."""

    def __init__(self, size: int, source: torch.device, target: torch.device) -> None:
        pinned = target.type == "cuda" and source.type == "cpu"
        self._source = torch.empty(size, dtype=torch.uint8, device=source, pin_memory=pinned)
        self._target = torch.empty(size, dtype=torch.uint8, device=target)

    def seconds(self) -> float:
        self._settle()
        began = time.perf_counter()
        self._target.copy_(self._source, non_blocking=True)
        self._settle()
        return time.perf_counter() - began

    def _settle(self) -> None:
        for tensor in (self._source, self._target):
            if tensor.is_cuda:
                torch.cuda.synchronize(tensor.device)


def busy(seconds: float, device: torch.device) -> None:
    """Matrix products on `device` for about that long; on a card the host waits for them, as a runner does for its tokens."""
    until = time.perf_counter() + seconds
    side = 2048 if device.type == "cuda" else 192
    matrix = torch.ones(side, side, device=device)
    while time.perf_counter() < until:
        matrix = (matrix @ matrix).clamp_(0, 1)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
