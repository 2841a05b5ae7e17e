"""One step: take in what was computed, admit, launch. `Policy` in the protocol says what follows from what."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count

import torch

from harness.tier.protocol import Completion, Outcome, Policy, Tier
from harness.tier.reference.admission import Admission
from harness.tier.reference.executor import Executor, Taken, Work
from harness.tier.reference.keeping import Keeping
from harness.tier.reference.kept import TierIndex
from harness.tier.reference.run import Run
from harness.tier.reference.streams import Event
from harness.tier.reference.tokenizer import TierTokenizer


@dataclass
class Scheduler:
    """Queues, running requests and what is kept. `waiting` are in the order in which they are admitted."""

    policy: Policy
    executor: Executor
    tokenizer: TierTokenizer
    waiting: deque[Run] = field(default_factory=deque)
    running: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        groups = [group.name for group in self.policy.groups]
        self.device = TierIndex(Tier.DEVICE, self.policy.device_pages, groups)
        self.host = TierIndex(Tier.HOST, self.policy.host_pages, groups)
        moment = count().__next__
        self.admission = Admission(self.policy, self.executor, self.device, self.host, moment)
        self.keeping = Keeping(self.executor, self.device, self.host, moment)

    def step(self) -> list[tuple[Run, Completion]]:
        """One step; gives the requests that ended in it."""
        ended = self.take_in()
        self.admit()
        self.launch()
        self.executor.tick()
        return ended

    def take_in(self) -> list[tuple[Run, Completion]]:
        """Wait for the step that was launched, and go on from what it gave."""
        ended: list[tuple[Run, Completion]] = []
        undone: list[Run] = []
        for run in list(self.running):
            if run.pending is None or run.flying is None:
                continue
            work, pending = run.flying, run.pending
            taken = pending.take()
            run.pending = run.flying = None
            if any(copy.failed for copy in run.loads):
                undone.append(run)
                continue
            run.confirmed = True
            completion = self._go_on(run, work, taken, pending.event)
            if completion is not None:
                ended.append((run, completion))
        self.settle()
        self._undo(undone)
        return ended

    def _go_on(self, run: Run, work: Work, taken: Taken, computed: Event) -> Completion | None:
        """Keep what is whole, note the new token; the completion, where that was the last."""
        if not taken.finite:
            return self._fail(run)
        begin, page = run.computed, self.policy.page
        run.computed += len(work.ids)
        if run.computed <= len(run.ids) and run.computed % self.policy.chunk == 0:
            self.keeping.keep(run, begin // page, run.computed // page, computed)
        if run.computed >= len(run.ids):
            run.decide(taken.token, taken.logits)
        return self.end(run, Outcome.FINISHED) if run.decided == run.wanted else None

    def _fail(self, run: Run) -> Completion:
        """What it computed is not finite. Nobody is to read what it read: whichever page brought it, none of them is kept."""
        for kept in run.kept.values():
            there = self.host.find(kept.key)
            self.device.forget(kept)
            if there is not None:
                self.host.forget(there)
        return self.end(run, Outcome.FAILED, "what was computed for this request is not finite; the pages that it read are no longer kept")

    def _undo(self, runs: list[Run]) -> None:
        """Their pages did not come: they are admitted anew, before all others."""
        for run in reversed(runs):
            if not run.confirmed:
                run.told = None
            self.retract(run)

    def settle(self) -> None:
        """Take in the copies that are over. Those without a lag are: what an engine declares leaves no room for a race."""
        for copy in (*(writing.copy for writing in self.keeping.writing), *(copy for copy, _ in self.admission.loading)):
            copy.finish()
        self.admission.settle()
        self.keeping.settle()

    def admit(self) -> None:
        """Those that fit, in order."""
        while self.waiting and len(self.running) < self.policy.max_running and self.admission.admit(self.waiting[0]):
            self.running.append(self.waiting.popleft())

    def launch(self) -> None:
        """A forward of each running request. Nothing is waited for."""
        for run in self.running:
            tokens = run.next_tokens(self.policy.chunk)
            last = run.computed + len(tokens) >= len(run.ids)
            run.flying = Work(
                tokens, run.computed, self.tables(run, len(tokens)), run.owner.identity, tuple(run.loads), last and run.request.want_logits
            )
            run.pending = self.executor.forward(run.flying)

    def tables(self, run: Run, tokens: int) -> dict[str, tuple[int, ...]]:
        """The physical pages of each group for all positions up to the next `tokens`."""
        count = -(-(run.computed + tokens) // self.policy.page)
        return {group.name: tuple(run.pages(at, count)) for at, group in enumerate(self.policy.groups)}

    def end(self, run: Run, outcome: Outcome, error: str | None = None) -> Completion:
        """Take it out, wherever it is, with all that it holds."""
        if run.running:
            self.running.remove(run)
            self.admission.release(run)
        else:
            self.waiting.remove(run)
        hits = run.told
        return Completion(
            outcome,
            self.tokenizer.decode(run.tokens),
            tuple(run.tokens),
            len(run.ids),
            hits.total if hits is not None else None,
            hits,
            torch.stack(run.logits) if run.logits else None,
            error,
        )

    def retract(self, run: Run) -> None:
        """Take its pages away; what a step in flight computes for it is not taken in. It waits before all others."""
        self.running.remove(run)
        self.admission.release(run)
        self.waiting.appendleft(run)
