"""The lab of the embedded server: `TierLab`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from harness.tier.protocol import Completion, Outcome, Request, Stage, Tier
from harness.tier.reference.executor import Executor
from harness.tier.reference.intake import Intake
from harness.tier.reference.kept import Kept
from harness.tier.reference.run import Run
from harness.tier.reference.scheduler import Scheduler


@dataclass
class ReferenceLab:
    """Looks into one server."""

    executor: Executor
    scheduler: Scheduler
    intake: Intake
    runs: Mapping[int, Run]
    done: Mapping[int, Completion]

    def lag(self, op: str, ticks: int) -> None:
        """`store` or `load` takes that many steps from now on."""
        self.executor.lag(op, ticks)

    def fail_next(self, op: str) -> None:
        """The next `store` or `load` copies nothing."""
        self.executor.fail_next(op)

    def advance(self, ticks: int) -> None:
        """Let the time of `ticks` steps pass for copies under way."""
        for _ in range(ticks):
            self.executor.tick()
        self.scheduler.settle()

    def stage(self, handle: int) -> Stage:
        """As `TierLab.stage`."""
        return Stage.DONE if handle in self.done else self.runs[handle].stage

    def read_page(self, tier: Tier, request: Request, index: int) -> Mapping[str, torch.Tensor] | None:
        """As `TierLab.read_page`."""
        found = self._find(tier, request, index)
        if found is None:
            return None
        groups = self.scheduler.policy.groups
        return {group.name: self.executor.read(tier, page).clone() for group, page in zip(groups, found.pages, strict=True)}

    def write_page(self, tier: Tier, request: Request, index: int, group: str, content: torch.Tensor) -> None:
        """As `TierLab.write_page`."""
        found = self._find(tier, request, index)
        if found is None:
            raise KeyError(f"page {index} of this prompt is not kept on the {tier.value}")
        names = [each.name for each in self.scheduler.policy.groups]
        self.executor.write(tier, found.pages[names.index(group)], content)

    def poison_free(self) -> None:
        """As `TierLab.poison_free`. What is in flight is waited for first."""
        self.executor.compute_event().wait()
        self.executor.poison(Tier.DEVICE, self.scheduler.device.free)
        self.executor.poison(Tier.HOST, self.scheduler.host.free)
        page = self.scheduler.policy.page
        for run in self.scheduler.running:
            written = run.computed + (len(run.flying.ids) if run.flying else 0)
            for at, pages in run.own.items():
                self.executor.poison(Tier.DEVICE, pages, max(0, min(page, written - at * page)))

    def collide(self) -> None:
        """As `TierLab.collide`. Keys of before are not found any more, and what they keep goes in its turn."""
        self.intake.keys.colliding = True

    def anew(self, request: Request) -> Completion:
        """As `TierLab.anew`."""
        ids, owner = self.intake.read(request)
        tokens, logits = self.executor.anew(ids, owner.identity, request.max_new_tokens, self.scheduler.policy.chunk)
        text = self.intake.tokenizer.decode(tokens)
        return Completion(Outcome.FINISHED, text, tuple(tokens), len(ids), logits=logits if request.want_logits else None)

    def _find(self, tier: Tier, request: Request, index: int) -> Kept | None:
        ids, owner = self.intake.read(request)
        chain = self.intake.keys.chain(ids, owner)
        there = (self.scheduler.device if tier is Tier.DEVICE else self.scheduler.host).find(chain[index])
        return there if there is not None and there.arrived else None
