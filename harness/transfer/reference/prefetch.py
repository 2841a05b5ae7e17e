"""The outstanding prefetches of a serial engine: at most one is tracked, and one background thread fetches."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from harness.core.clock import Clock
from harness.transfer.protocol import CompletionOutcome, Delivery, Endpoint, Outcome
from harness.transfer.reference.landing import Berth, LandingPool
from harness.transfer.reference.ledger import Ledger
from harness.transfer.reference.worker import Worker

ENDED_AS = {
    Outcome.HIT: CompletionOutcome.DONE,
    Outcome.MISS: CompletionOutcome.MISSED,
    Outcome.FAILED: CompletionOutcome.FAILED,
}
"""How a transfer that nobody dropped is reported."""


class Prefetch:
    """One transfer in the background. Compared by identity: two uses of a request id are two prefetches."""

    __slots__ = ("berth", "delivery", "device", "dropped", "endpoint", "generation", "request_id", "skip")

    def __init__(self, request_id: str, generation: int, endpoint: Endpoint, device: torch.device | None, skip: int, berth: Berth) -> None:
        self.request_id, self.generation, self.endpoint, self.device = request_id, generation, endpoint, device
        self.skip, self.berth = skip, berth
        self.delivery: Delivery | None = None
        """Set once, when the transfer ends."""
        self.dropped = False
        """Nobody wants the result any more, but the fetch had begun."""

    def ended(self) -> bool:
        return self.delivery is not None

    def unwanted(self) -> bool:
        return self.dropped


class PrefetchTable:
    """Tracks prefetches by request id. `fetch` is called on the worker's thread and must not raise. Thread-safe."""

    def __init__(self, fetch: Callable[[Prefetch], Delivery], clock: Clock, ledger: Ledger, landing: LandingPool) -> None:
        self._fetch, self._clock, self._ledger, self._landing = fetch, clock, ledger, landing
        self._lock = threading.Lock()
        self._tracked: dict[str, Prefetch] = {}
        self._copies = 0
        self._stopped = False
        self._worker: Worker[Prefetch] = Worker("kv-prefetch", self._run, clock)

    def start(self, request_id: str, endpoint: Endpoint | None, device: torch.device | None = None, skip: int = 0) -> None:
        """Fetch in the background and return at once. What was left over of other requests is dropped first, in any case.

        A request that is tracked keeps the prefetch it has. Nothing is submitted without an endpoint or after `stop`.
        """
        with self._lock:
            self._make_room(request_id)
            if not self._stopped and not self._tracks(request_id) and self._reachable(endpoint):
                job = Prefetch(request_id, self._ledger.begin(request_id), endpoint, device, skip, Berth(self._landing))
                self._tracked[request_id] = job
                self._copies += 1
                self._worker.submit(job)

    def consume(self, request_id: str) -> tuple[Delivery, Endpoint | None]:
        """The request's delivery, waiting for one under way, and the sender that was asked; MISS if none is tracked.

        Everything else is dropped, also on a miss.
        """
        with self._lock:
            job = self._tracked.get(request_id)
            self._drop_orphans(request_id)
            self._forget(request_id)
        if job is None:
            return Delivery(Outcome.MISS), None
        self._await_end(job)
        job.berth.hand_over()
        return job.delivery, job.endpoint

    def abort(self, request_id: str) -> Endpoint | None:
        """Drop the request's prefetch, and tell the sender that it asked; nothing happens where none is tracked."""
        with self._lock:
            job = self._tracked.get(request_id)
            self._drop(request_id)
            return job.endpoint if job else None

    def stop(self) -> None:
        """Drop everything and end the worker. May be called twice."""
        with self._lock:
            self._stopped = True
            for request_id in list(self._tracked):
                self._drop(request_id)
        self._worker.close()

    def usage(self) -> dict[str, int]:
        """`futures` tracked, `workers` alive, `copies` queued or under way (dropped ones too), `held_bytes` fetched but not consumed.

        `landing_bytes`: host memory of fetches under way, and of those not consumed.
        """
        with self._lock:
            held = sum(job.delivery.size for job in self._tracked.values() if job.delivery)
            return {
                "futures": len(self._tracked),
                "workers": int(self._worker.alive),
                "copies": self._copies,
                "held_bytes": held,
                "landing_bytes": self._landing.usage(),
            }

    def _tracks(self, request_id: str) -> bool:
        return request_id in self._tracked

    def _reachable(self, endpoint: Endpoint | None) -> bool:
        """Without an explicit sender a background fetch could ask the wrong one of several replicas."""
        return endpoint is not None

    def _make_room(self, request_id: str) -> None:
        """A start: requests come one after the other, so whatever else is tracked is a leftover."""
        self._drop_all_but(request_id)

    def _drop_orphans(self, request_id: str) -> None:
        """A consume: the engine has moved on to this request."""
        self._drop_all_but(request_id)

    def _drop_all_but(self, request_id: str) -> None:
        for other in [tracked for tracked in self._tracked if tracked != request_id]:
            self._drop(other)

    def _drop(self, request_id: str) -> None:
        job = self._tracked.get(request_id)
        self._forget(request_id)
        if job is None:
            return
        if job.ended():
            job.berth.give_back()
            return
        if self._cancel(job):
            self._end(job, Delivery(Outcome.MISS), CompletionOutcome.ABORTED)
        else:
            job.dropped = True
            self._clock.notify()

    def _forget(self, request_id: str) -> None:
        """The id is free for another use."""
        self._tracked.pop(request_id, None)

    def _cancel(self, job: Prefetch) -> bool:
        """Keep a queued job from beginning; False if it has begun."""
        return self._worker.cancel(job)

    def _await_end(self, job: Prefetch) -> None:
        """Bounded by the receive timeout of the fetch, and by that of one dropped before it."""
        self._clock.wait(job.ended)

    def _run(self, job: Prefetch) -> None:
        delivery = self._fetch(job)
        with self._lock:
            if job.dropped:
                self._end(job, Delivery(Outcome.MISS), CompletionOutcome.ABORTED)
            else:
                self._end(job, delivery, ENDED_AS[delivery.outcome])
        self._clock.notify()

    def _end(self, job: Prefetch, delivery: Delivery, outcome: CompletionOutcome) -> None:
        self._copies -= 1
        if delivery.outcome is not Outcome.HIT:
            # Not before: until now the copy may have written there.
            job.berth.give_back()
        self._report(job, outcome)
        job.delivery = delivery

    def _report(self, job: Prefetch, outcome: CompletionOutcome) -> None:
        self._ledger.end(job.request_id, job.generation, outcome)
