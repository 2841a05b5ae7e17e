"""The seeds' check of a host tier: two rounds over prompts that oversubscribe the device, on a build with the tier and on one without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.verdict import ClaimBroken
from harness.tier.driver import generate
from harness.tier.oracle import Oracle
from harness.tier.protocol import Completion, Outcome, Policy, PrefixCacheServer, Request, TierHits
from harness.tier.workload import Workload


@dataclass(frozen=True)
class Round:
    """What each prompt came to."""

    completions: tuple[Completion, ...]

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(completion.prompt_tokens for completion in self.completions)

    @property
    def cached_tokens(self) -> int:
        """Of all prompts."""
        return sum(completion.cached_tokens or 0 for completion in self.completions)

    @property
    def ratio(self) -> float:
        """Cached tokens of a prompt token."""
        return self.cached_tokens / self.prompt_tokens

    @property
    def host_ratio(self) -> float | None:
        """Tokens that came from the host of a prompt token; None where the engine does not tell tiers apart."""
        tiers = [completion.tiers for completion in self.completions if completion.tiers is not None]
        return sum(hits.host for hits in tiers) / self.prompt_tokens if len(tiers) == len(self.completions) else None


@dataclass(frozen=True)
class Arm:
    """One build: its device capacity in tokens, and its two rounds."""

    capacity: int | None
    policy: Policy | None
    first: Round
    second: Round

    @property
    def prompts(self) -> int:
        """Of one round."""
        return len(self.first.completions)


def run_arm(engine: PrefixCacheServer, prompts: Sequence[str], workload: Workload, *, stepped: bool) -> Arm:
    """Both rounds, a prompt at a time. ClaimBroken for one that fails, is not counted, or has not the length that the sizing rests on."""
    requests = [Request(prompt, max_new_tokens=workload.new_tokens) for prompt in prompts]
    rounds = [Round(tuple(generate(engine, requests, stepped=stepped))) for _ in range(2)]
    for asked in rounds:
        for number, completion in enumerate(asked.completions):
            check(number, completion, workload)
    return Arm(engine.device_capacity, engine.policy, *rounds)


def check(number: int, completion: Completion, workload: Workload) -> None:
    """The prompt was answered, and can be counted with. Raised, not asserted: the sizing rests on it under `python -O` too."""
    if completion.outcome is not Outcome.FINISHED:
        raise ClaimBroken("REQUEST FAILED", got=f"prompt {number}: {completion.outcome.value}, {completion.error}", expected="an answer")
    if completion.cached_tokens is None:
        raise ClaimBroken("NOT COUNTED", got=f"prompt {number}: cached_tokens is None", expected="a count, as the engine declares")
    if not workload.prompt_least <= completion.prompt_tokens <= workload.prompt_most:
        raise ClaimBroken(
            "PROMPT LENGTH",
            got=f"prompt {number} has {completion.prompt_tokens} tokens",
            expected=f"{workload.prompt_least} to {workload.prompt_most}; with another tokenizer, --set tier.entries so that they do",
        )


def predicted(arm: Arm) -> list[TierHits]:
    """What the policy makes each request of both rounds reuse, in their order.

    The prompts differ in their first page, so that only their lengths matter: the oracle gets tokens made up for each.
    """
    if arm.policy is None:
        raise ValueError("a prediction needs an engine that declares its policy")
    oracle, hits = Oracle(arm.policy), []
    asked = [(number, completion) for each in (arm.first, arm.second) for number, completion in enumerate(each.completions)]
    for handle, (number, completion) in enumerate(asked):
        oracle.submit(handle, (number, *range(completion.prompt_tokens - 1)), len(completion.token_ids or ()))
        while not oracle.done(handle):
            oracle.pump()
        hits.append(oracle.hits(handle) or TierHits(0, 0))
    return hits
