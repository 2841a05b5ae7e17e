"""Prefixes that the device lets go come back from the host tier, and only from there: the seeds' two rounds in two arms."""

from fixtures.tier_rounds import Rounds
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.tier.rounds import predicted
from harness.tier.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=15, suite="tier-cpu")
register_cuda_ci(est_time=900, suite="runtime-prefix-cache-e2e")


@claim("tier.rounds.prompt_tokens", source="spec 3: a prompt outside [1900, 2270] tokens is an error that survives python -O")
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
def test_prompt_tokens(tier_rounds: Rounds, judge: Judge, workload: Workload) -> None:
    """Each prompt has the length that the sizing rests on, the same in both rounds and both arms."""
    lengths = [[c.prompt_tokens for c in each.completions] for arm in (tier_rounds.on, tier_rounds.off) for each in (arm.first, arm.second)]
    for tokens in lengths[0]:
        got = f"a prompt of {tokens} tokens"
        judge.demand(
            workload.prompt_least <= tokens <= workload.prompt_most, got=got, expected="a length inside the bounds of the workload"
        )
    judge.equal(lengths[1:], [lengths[0]] * 3, "prompt tokens in the other rounds", source="round 1 with the host tier")


@claim(
    "tier.rounds.sizing", source="spec 3: K = ceil(1.44 * capacity / (footprint * 2074)) from the host-tier arm, reused by the other arm"
)
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
def test_sizing(tier_rounds: Rounds, judge: Judge) -> None:
    """The host tier takes nothing from the device pool: both arms hold as many tokens."""
    judge.equal(tier_rounds.off.capacity, tier_rounds.on.capacity, "device capacity without the host tier", source="the arm with it")
    judge.equal(tier_rounds.off.prompts, tier_rounds.on.prompts, "prompts without the host tier", source="the arm with it")


@claim("tier.rounds.cold", source="spec 3.1: cached / prompt is exactly 0 in both arms")
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
def test_cold(tier_rounds: Rounds, judge: Judge) -> None:
    """Round 1 reuses nothing, with the host tier and without."""
    for name, arm in (("with", tier_rounds.on), ("without", tier_rounds.off)):
        cached = [completion.cached_tokens for completion in arm.first.completions]
        judge.equal(cached, [0] * arm.prompts, f"tokens that round 1 reused {name} the host tier")


@claim("tier.rounds.host_tier", source="spec 3.2: round 2 cached / prompt is at least 0.5 with the host tier")
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
def test_host_tier(tier_rounds: Rounds, judge: Judge, workload: Workload) -> None:
    """With the host tier, round 2 reuses half of the prompt tokens at least."""
    check_ratio(
        judge, tier_rounds.on.second.ratio >= workload.warm_least, tier_rounds, f"with the host tier, at least {workload.warm_least}"
    )


@claim("tier.rounds.some_text", source="spec 3.3: greedy text of round 2 equals round 1's for at least one prompt")
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
def test_some_text(tier_rounds: Rounds, judge: Judge) -> None:
    """With the host tier, at least one prompt has the text in round 2 that it had in round 1."""
    pairs = list(zip(tier_rounds.on.first.completions, tier_rounds.on.second.completions, strict=True))
    judge.taken(sum(second.cached_tokens > 0 for _, second in pairs), "prompts of round 2 that reused anything")
    same = sum(first.text == second.text for first, second in pairs)
    judge.demand(same >= 1, got=f"{same} of {len(pairs)} texts are the same in round 2", expected="at least one")


@claim("tier.rounds.every_text", source="spec 3.3: an engine with exact restore owes equality for all")
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.EXACT_RESTORE)
def test_every_text(tier_rounds: Rounds, judge: Judge) -> None:
    """Every prompt has the text and the tokens in round 2 that it had in round 1, with the host tier and without."""
    answers = [
        [(c.text, c.token_ids) for c in each.completions] for arm in (tier_rounds.on, tier_rounds.off) for each in (arm.first, arm.second)
    ]
    judge.taken(tier_rounds.on.second.cached_tokens, "tokens reused in round 2")
    for number, expected in enumerate(answers[0]):
        for given, where in zip(answers[1:], ("round 2", "round 1 without the host tier", "round 2 without it"), strict=True):
            judge.equal(given[number], expected, f"the answer to prompt {number} in {where}", source="round 1")


@claim("tier.rounds.device_only", source="spec 3.4: round 2 cached / prompt is at most 0.2 without the host tier")
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
def test_device_only(tier_rounds: Rounds, judge: Judge, workload: Workload) -> None:
    """Without the host tier, round 2 reuses a fifth of the prompt tokens at most."""
    check_ratio(judge, tier_rounds.off.second.ratio <= workload.cold_most, tier_rounds, f"without it, at most {workload.cold_most}")


@claim("tier.rounds.on_beats_off", source="spec 3.5: on beats off")
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
def test_on_beats_off(tier_rounds: Rounds, judge: Judge) -> None:
    """Round 2 reuses more with the host tier than without."""
    check_ratio(judge, tier_rounds.on.second.ratio > tier_rounds.off.second.ratio, tier_rounds, "more with the host tier than without")


@claim("tier.rounds.counts", source="design: a ratio is judged on integers that an oracle predicts, where the engine declares its policy")
@requires(TierCap.HOST_TIER)
@requires(TierCap.CAPACITY)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TIER_HITS)
@requires(TierCap.POLICY)
def test_counts(tier_rounds: Rounds, judge: Judge) -> None:
    """Each prompt of both rounds reuses from each tier just what the policy says, in both arms."""
    judge.taken(tier_rounds.on.second.cached_tokens, "tokens reused in round 2")
    for name, arm in (("with", tier_rounds.on), ("without", tier_rounds.off)):
        told = [completion.tiers for completion in (*arm.first.completions, *arm.second.completions)]
        for number, (got, expected) in enumerate(zip(told, predicted(arm), strict=True)):
            what = f"tokens reused by prompt {number % arm.prompts} in round {1 + number // arm.prompts} {name} the host tier"
            judge.equal(got, expected, what, source="the oracle")


def check_ratio(judge: Judge, holds: bool, rounds: Rounds, expected: str) -> None:
    """Says both ratios of round 2."""
    got = f"round 2 reused {rounds.on.second.ratio:.4f} of the prompt tokens with the host tier, {rounds.off.second.ratio:.4f} without"
    judge.demand(holds, got=got, expected=expected)
