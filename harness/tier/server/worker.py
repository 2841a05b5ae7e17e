"""The one thread that calls the engine: it steps while a request is under way, and tells the event loop what comes."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.tier.protocol import Completion, PrefixCacheServer, Request

Result = TypeVar("Result")

STOP = 30.0
"""Seconds for the thread to end its step."""


@dataclass(frozen=True)
class Progress:
    """What a request has come to: new ids and the bytes of their text since the last word; `end`: its completion, in the last one."""

    ids: tuple[int, ...] = ()
    said: bytes = b""
    end: Completion | None = None


class Job:
    """A request under way. `words` holds its `Progress`, in order, or the exception that broke the engine."""

    def __init__(self, handle: int, loop: asyncio.AbstractEventLoop) -> None:
        self.handle, self._loop = handle, loop
        self.words: asyncio.Queue[Progress | Exception] = asyncio.Queue()
        self.ids = self.bytes = 0

    def tell(self, word: Progress | Exception) -> None:
        """From the engine's thread."""
        self._loop.call_soon_threadsafe(self.words.put_nowait, word)


class Worker:
    """Owns the engine from here on; `close` closes it. One that tells what a request has so far (`so_far`) is streamed token by token."""

    def __init__(self, engine: PrefixCacheServer) -> None:
        self.engine = engine
        self.broken: Exception | None = None
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._jobs: dict[int, Job] = {}
        self._so_far: Callable[[int], tuple[tuple[int, ...], bytes]] | None = getattr(engine, "so_far", None)
        self._thread = threading.Thread(target=self._run, name="assay-engine", daemon=True)
        self._thread.start()

    async def submit(self, request: Request) -> Job:
        """Queue it. Raises what the engine's `submit` raises."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(asyncio.wrap_future(self._ask(lambda: self._submitted(request, loop))))

    def leave(self, job: Job) -> None:
        """Nobody waits for it any more: end it, if it is under way."""
        self._ask(lambda: self._left(job))

    async def call(self, function: Callable[[PrefixCacheServer], Result]) -> Result:
        """`function(engine)` on the engine's thread, between two steps."""
        return await asyncio.wrap_future(self._ask(lambda: function(self.engine)))

    def usage(self) -> Mapping[str, int]:
        """What the engine holds; from any thread but the engine's."""
        return self._ask(self.engine.usage).result(STOP)

    def close(self) -> None:
        """End the thread, and close the engine."""
        self._calls.put(None)
        self._thread.join(STOP)
        self.engine.close()

    def _ask(self, function: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()

        def answer() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 (raised again where the future is waited for)
                future.set_exception(error)

        self._calls.put(answer)
        return future

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(block=not self._jobs)
            except queue.Empty:
                self._step()
                continue
            if call is None:
                return
            call()

    def _submitted(self, request: Request, loop: asyncio.AbstractEventLoop) -> Job:
        if self.broken is not None:
            raise RuntimeError(f"the engine is broken: {self.broken}")
        job = Job(self.engine.submit(request), loop)
        self._jobs[job.handle] = job
        return job

    def _left(self, job: Job) -> None:
        if self._jobs.pop(job.handle, None) is not None:
            self.engine.abort(job.handle)
            self.engine.result(job.handle)

    def _step(self) -> None:
        try:
            self.engine.pump()
            for job in list(self._jobs.values()):
                self._tell(job)
        except Exception as error:  # noqa: BLE001 (every request that waits is told)
            self.broken = error
            for job in self._jobs.values():
                job.tell(error)
            self._jobs.clear()

    def _tell(self, job: Job) -> None:
        end = self.engine.result(job.handle)
        if end is not None:
            del self._jobs[job.handle]
            job.tell(Progress(tuple(end.token_ids or ())[job.ids :], end=end))
        elif self._so_far is not None:
            ids, said = self._so_far(job.handle)
            if len(ids) > job.ids:
                job.tell(Progress(ids[job.ids :], said[job.bytes :]))
                job.ids, job.bytes = len(ids), len(said)


def as_worker(engine: Any) -> Worker:
    """ValueError for an engine that is not stepped."""
    for name in ("submit", "pump", "result", "abort"):
        if not callable(getattr(engine, name, None)):
            raise ValueError(f"{type(engine).__name__} has no {name}(): only a stepped prefix-cache server can be served")
    return Worker(engine)
