"""The embedded prefix-cache server: what `PrefixCacheServer` says, over a scheduler that works only inside `pump`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import count

from harness.tier.protocol import Completion, Outcome, Policy, Request
from harness.tier.reference.executor import Executor
from harness.tier.reference.intake import Intake
from harness.tier.reference.keys import Keys
from harness.tier.reference.lab import ReferenceLab
from harness.tier.reference.network import Network
from harness.tier.reference.run import Run
from harness.tier.reference.scheduler import Scheduler
from harness.tier.reference.tokenizer import TierTokenizer


class ReferenceServer:
    """`tier/reference`. `limit`: positions that a request may have, prompt and new tokens."""

    def __init__(self, network: Network, tokenizer: TierTokenizer, executor: Executor, policy: Policy, limit: int) -> None:
        self.policy: Policy | None = policy
        self.page_size: int | None = policy.page
        self.footprint = len(policy.groups)
        self.device_capacity: int | None = policy.device_pages * policy.page
        self.host_capacity: int | None = policy.host_pages * policy.page
        self.max_prompt_tokens: int | None = limit - 1
        self.vocabulary: int | None = network.vocabulary
        self.adapters: Sequence[str] = network.adapters
        self.versions: Sequence[str] = network.versions
        self._executor, self._tokenizer = executor, tokenizer
        self._intake = Intake(network, tokenizer, policy, limit, Keys(policy.page))
        self._scheduler = Scheduler(policy, executor, tokenizer)
        self._runs: dict[int, Run] = {}
        self._done: dict[int, Completion] = {}
        self._numbers = count(1)
        self._closed = False
        self.lab = ReferenceLab(executor, self._scheduler, self._intake, self._runs, self._done)

    def submit(self, request: Request) -> int:
        """As `PrefixCacheServer.submit`."""
        self._check_open()
        ids, owner = self._intake.read(request)
        run = Run(next(self._numbers), request, ids, owner, self._intake.keys.chain(ids, owner))
        self._runs[run.handle] = run
        self._scheduler.waiting.append(run)
        return run.handle

    def pump(self) -> None:
        """One step."""
        self._check_open()
        for run, completion in self._scheduler.step():
            self._end(run, completion)

    def result(self, handle: int) -> Completion | None:
        """As `PrefixCacheServer.result`."""
        if handle in self._done:
            return self._done.pop(handle)
        self._run(handle)
        return None

    def so_far(self, handle: int) -> tuple[tuple[int, ...], bytes]:
        """The new tokens of a request that is not done, and the bytes of their text; for a server that streams them."""
        run = self._run(handle)
        return tuple(run.tokens), b"".join(self._tokenizer.piece(id_) for id_ in run.tokens)

    def abort(self, handle: int) -> None:
        """As `PrefixCacheServer.abort`."""
        if handle not in self._done:
            run = self._run(handle)
            self._end(run, self._scheduler.end(run, Outcome.ABORTED))

    def retract(self, handle: int) -> None:
        """As `PrefixCacheServer.retract`; a request that waits or is done stays as it is."""
        if handle not in self._done:
            run = self._run(handle)
            if run.running:
                self._scheduler.retract(run)

    def quiesce(self, timeout: float) -> None:
        """As `PrefixCacheServer.quiesce`. A lag passes."""
        deadline = time.monotonic() + timeout
        for writing in list(self._scheduler.keeping.writing):
            if time.monotonic() > deadline:
                raise TimeoutError(f"write-backs have not landed within {timeout} s")
            writing.copy.wait()
        self._scheduler.settle()

    def drop_device(self) -> None:
        """As `PrefixCacheServer.drop_device`."""
        for kept in self._scheduler.device.victims():
            self._scheduler.device.forget(kept)

    def flush(self) -> None:
        """As `PrefixCacheServer.flush`. Copies under way are waited for."""
        if self._runs:
            raise RuntimeError(f"{len(self._runs)} requests are not done; pump until they are, or abort them")
        for copy in [*(w.copy for w in self._scheduler.keeping.writing), *(copy for copy, _ in self._scheduler.admission.loading)]:
            copy.wait()
        self._scheduler.settle()
        for tier in (self._scheduler.device, self._scheduler.host):
            for kept in tier:
                tier.forget(kept)

    def usage(self) -> Mapping[str, int]:
        """Requests, finished ones whose results were not taken among them; physical pages that are neither free nor kept; pins."""
        device, host = self._scheduler.device, self._scheduler.host
        return {
            "requests": len(self._runs) + len(self._done),
            "device_pages": device.held,
            "host_pages": host.held,
            "device_pins": device.pins,
            "host_pins": host.pins,
        }

    def close(self) -> None:
        """Free the pools. Requests that are not done come to nothing."""
        if not self._closed:
            self._closed = True
            for run in list(self._runs.values()):
                self._end(run, self._scheduler.end(run, Outcome.ABORTED))
            self._done.clear()
            self._executor.close()

    def _end(self, run: Run, completion: Completion) -> None:
        del self._runs[run.handle]
        self._done[run.handle] = completion

    def _run(self, handle: int) -> Run:
        if handle not in self._runs:
            raise KeyError(f"no request {handle!r} is waiting, running or done and not yet taken")
        return self._runs[handle]

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the server is closed")
