"""One request on its way through the scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from harness.tier.protocol import Request, Stage, TierHits
from harness.tier.reference.executor import Copy, Pending, Work
from harness.tier.reference.kept import Kept
from harness.tier.reference.keys import Key, Owner


@dataclass(eq=False)
class Run:
    """What is known of it, and, while it is running, what it holds.

    Over all its admissions: `tokens` are the new tokens that it has; `told` what the completion says was cached, `confirmed` by a first
    step.

    Of one admission: `kept` are the device's pages that it holds by a pin, by their place in the prompt; `own` those that are its alone;
    `computed` positions are written; `decided` counts its new tokens, those told again after a retraction included.
    """

    handle: int
    request: Request
    ids: tuple[int, ...]
    owner: Owner
    keys: list[Key]
    tokens: list[int] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)
    told: TierHits | None = None
    confirmed: bool = False
    running: bool = False
    kept: dict[int, Kept] = field(default_factory=dict)
    own: dict[int, tuple[int, ...]] = field(default_factory=dict)
    loads: list[Copy] = field(default_factory=list)
    computed: int = 0
    decided: int = 0
    flying: Work | None = None
    pending: Pending | None = None

    @property
    def stage(self) -> Stage:
        """How far it has come; not yet done."""
        if not self.running:
            return Stage.QUEUED
        if any(not copy.done() for copy in self.loads):
            return Stage.LOADING
        return Stage.PREFILL if self.computed < len(self.ids) else Stage.DECODE

    @property
    def wanted(self) -> int:
        """New tokens that were asked for."""
        return self.request.max_new_tokens

    def pages(self, group: int, count: int) -> list[int]:
        """The physical pages of one group for the first `count` pages of tokens."""
        return [(self.kept[at].pages if at in self.kept else self.own[at])[group] for at in range(count)]

    def next_tokens(self, chunk: int) -> tuple[int, ...]:
        """What the next forward is fed: the prompt up to the next multiple of `chunk`, or the newest token."""
        if self.computed < len(self.ids):
            end = min(self.computed + chunk - self.computed % chunk, len(self.ids))
            return self.ids[self.computed : end]
        return (self.tokens[self.decided - 1],)

    def decide(self, token: int, logits: torch.Tensor | None) -> None:
        """A forward gave a new token; one that is known from before a retraction is not told twice."""
        if self.decided == len(self.tokens):
            self.tokens.append(token)
            if logits is not None:
                self.logits.append(logits)
        self.decided += 1
