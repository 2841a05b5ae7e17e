"""Work in order on a compute, a store and a load stream: those of a card, or on a CPU a deterministic simulation of them.

A simulated stream is as adverse as a card can be. The compute stream runs only when somebody waits for it. A copy stream runs as soon as
what its next copy needs is done: a copy that does not say that it needs a computation runs before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

COPIES = ("store", "load")
"""The operations that can lag and fail."""


class Event:
    """A place in a stream: everything that was submitted before it, and its own work."""

    def __init__(self, stream: Stream, place: int, cuda: torch.cuda.Event | None) -> None:
        self.stream, self.place, self.cuda = stream, place, cuda

    def started(self) -> bool:
        """Whether its work ran, or on a card is queued."""
        return self.stream.begun >= self.place

    def done(self) -> bool:
        """Whether its work is done. Waits for nothing."""
        return self.started() and (self.cuda is None or self.cuda.query())

    def wait(self) -> None:
        """Return once it is done."""
        self.stream.force(self)
        if self.cuda is not None:
            self.cuda.synchronize()
        self.stream.streams.settle()


@dataclass(frozen=True)
class Task:
    """Work that waits for its turn: until `due`, in ticks, and until `needs` are met."""

    run: Callable[[], None]
    needs: tuple[Event, ...]
    due: int
    event: Event


class Stream:
    """Tasks, one after the other. An `eager` one starts each as soon as it may, a lazy one when somebody waits for it."""

    def __init__(self, name: str, streams: Streams, eager: bool) -> None:
        self.name, self.streams, self.eager = name, streams, eager
        self.queue: deque[Task] = deque()
        self.submitted = self.begun = 0
        self.cuda = torch.cuda.Stream(streams.device) if streams.device.type == "cuda" else None
        self.last = Event(self, 0, None)

    def submit(self, run: Callable[[], None], needs: Sequence[Event] = (), lag: int = 0) -> Event:
        """Queue it; the event of its end. It starts `lag` ticks from now, or when somebody waits for it."""
        self.submitted += 1
        self.last = Event(self, self.submitted, torch.cuda.Event() if self.cuda is not None else None)
        self.queue.append(Task(run, tuple(needs), self.streams.now + lag, self.last))
        self.streams.settle()
        return self.last

    def wait(self, event: Event) -> None:
        """What this stream does from now on comes after `event`; called from within its tasks, too."""
        event.stream.force(event)
        if self.cuda is not None and event.cuda is not None:
            self.cuda.wait_event(event.cuda)

    def ready(self) -> bool:
        """Whether its next task may start by itself. On a card the device waits for what the task needs, so it need only be queued."""
        if not self.queue or self.queue[0].due > self.streams.now:
            return False
        return all(need.started() for need in self.queue[0].needs)

    def force(self, event: Event) -> None:
        """Start everything up to `event`, whatever its lag."""
        while self.begun < event.place:
            self.start()

    def start(self) -> None:
        """Start the next task, behind what it needs."""
        task = self.queue.popleft()
        for need in task.needs:
            self.wait(need)
        with self.current():
            task.run()
            if task.event.cuda is not None:
                task.event.cuda.record()
        self.begun += 1

    @contextmanager
    def current(self) -> Iterator[None]:
        """Operations in here are this stream's."""
        with torch.inference_mode(), torch.cuda.stream(self.cuda) if self.cuda is not None else nullcontext():
            yield


class Streams:
    """The three streams of one executor, and the clock of their lags."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.now = device, 0
        self.lags = dict.fromkeys(COPIES, 0)
        self.compute = Stream("compute", self, eager=device.type == "cuda")
        self.store, self.load = Stream("store", self, eager=True), Stream("load", self, eager=True)

    def tick(self) -> None:
        """The clock moves on by one."""
        self.now += 1
        self.settle()

    def lag(self, op: str, ticks: int) -> None:
        """From now on copies of `op` start `ticks` ticks after they were submitted."""
        known(op)
        if ticks < 0:
            raise ValueError(f"lag of {ticks} ticks for {op}: at least 0")
        self.lags[op] = ticks

    def settle(self) -> None:
        """Start all that may start by itself."""
        eager = [stream for stream in (self.compute, self.store, self.load) if stream.eager]
        while ready := [stream for stream in eager if stream.ready()]:
            for stream in ready:
                if stream.ready():
                    stream.start()

    def close(self) -> None:
        """Wait for what a card has queued; what did not start never does."""
        for stream in (self.compute, self.store, self.load):
            stream.queue.clear()
        synchronize(self.device)


def synchronize(device: torch.device) -> None:
    """Wait for what a card has queued on any stream."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def put(numbers: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the CPU on the device: from pinned memory, so that the host need not wait for what is queued before the copy."""
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers


def known(op: str) -> None:
    """ValueError unless `op` is one of COPIES."""
    if op not in COPIES:
        raise ValueError(f"no operation {op!r}; there are {', '.join(COPIES)}")
