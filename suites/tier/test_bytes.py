"""What comes back is what was written: a page bit for bit, and an answer that is the one of a request that found nothing kept."""

from dataclasses import replace

import pytest
import torch

from fixtures.tier import MakeTierStage, TierStage
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.tier.protocol import Completion, Request, Tier
from harness.tier.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=8, suite="tier-cpu")
register_cuda_ci(est_time=120, suite="tier-h100")


@claim("tier.bytes.restored", source="issue: a restored page is the page that was written, by a witness outside the tested path")
@requires(TierCap.LAB)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
def test_restored(tier_stage: TierStage, judge: Judge) -> None:
    """Each page that comes back from the host holds the bits that the device wrote, in every group, as the host did in between."""
    request = tier_stage.request(tier_stage.ids(chunks=3, extra=1))
    tier_stage.ask(request)
    tier_stage.quiesce()
    pages = range(3 * tier_stage.chunk // tier_stage.page)
    written = [tier_stage.page_kept(Tier.DEVICE, request, index) for index in pages]
    stored = [tier_stage.page_kept(Tier.HOST, request, index) for index in pages]
    for index in pages:
        for group, bits in (written[index] or {}).items():
            judge.same_bits((stored[index] or {}).get(group), bits, f"page {index}, group {group} on the host", source="the device")
        judge.taken(len(written[index] or {}), f"groups of page {index}")
    tier_stage.drop_device()
    gone = [tier_stage.page_kept(Tier.DEVICE, request, index) is None for index in pages]
    judge.equal(gone, [True] * len(pages), "device pages that went with drop_device")
    again = tier_stage.ask(request)
    restored = [tier_stage.page_kept(Tier.DEVICE, request, index) for index in pages]

    judge.taken(again.tiers.host if again.tiers else again.cached_tokens or 0, "tokens from the host")
    for index in pages:
        for group, bits in (written[index] or {}).items():
            judge.same_bits((restored[index] or {}).get(group), bits, f"page {index}, group {group} restored", source="the device before")
    _differ(judge, written)


@claim("tier.bytes.warm", source="vllm#5543, #40896, #54490: the same greedy request twice, other tokens")
@requires(TierCap.EXACT_RESTORE)
@requires(TierCap.CACHED_TOKENS)
def test_warm(tier_stage: TierStage, judge: Judge) -> None:
    """An answer over pages that the device kept has the tokens and the logit bits of the cold one."""
    # Nearly a whole chunk is left to compute behind the hit.
    request = _request(tier_stage, tier_stage.prompt(chunks=3, extra=tier_stage.chunk - 1))
    cold = tier_stage.ask(request)
    warm = tier_stage.ask(request)

    judge.taken(warm.cached_tokens or 0, "tokens reused")
    same_answer(judge, warm, cold, "the warm answer", source="the cold one")


@claim("tier.bytes.host_warm", source="spec 3.3; sglang#34683: an engine with exact restore owes the cold answer")
@requires(TierCap.EXACT_RESTORE)
@requires(TierCap.TIER_HITS)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
def test_host_warm(tier_stage: TierStage, judge: Judge, workload: Workload) -> None:
    """An answer over pages from the host, all of them or the rest of them, has the tokens and the logit bits of the cold one."""
    beginning = _request(tier_stage, tier_stage.prompt(chunks=1, extra=1))
    request = _request(tier_stage, tier_stage.prompt(chunks=3, pages=workload.pages, extra=3))
    cold = tier_stage.ask(request)
    tier_stage.drop_device()
    whole = tier_stage.ask(request)
    tier_stage.drop_device()
    tier_stage.ask(beginning)
    rest = tier_stage.ask(request)

    for warm, what in ((whole, "the answer with all from the host"), (rest, "the answer with the beginning from the device")):
        judge.taken(warm.tiers.host if warm.tiers else 0, "tokens from the host")
        same_answer(judge, warm, cold, what, source="the cold one")


@claim("tier.bytes.slow_load", source="sglang#22811: one layer read without waiting for its load: rare, and only on host hits")
@requires(TierCap.EXACT_RESTORE)
@requires(TierCap.TIER_HITS)
@requires(TierCap.LAB)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
def test_slow_load(tier_stage: TierStage, judge: Judge) -> None:
    """However long a load takes, the answer over its pages has the tokens and the logit bits of the cold one, and so has the next one."""
    requests = [_request(tier_stage, tier_stage.prompt(chunks=3, extra=1, of=of)) for of in range(3)]
    cold = tier_stage.ask_all(requests)
    for ticks in (1, 2, 5):
        tier_stage.drop_device()
        # Whoever reads a page before the load has filled it finds no number there.
        tier_stage.engine.lab.poison_free()
        tier_stage.lag("load", ticks)
        for request, expected in zip(requests, cold, strict=True):
            slow = tier_stage.ask(request)
            judge.taken(slow.tiers.host if slow.tiers else 0, "tokens from the host")
            same_answer(judge, slow, expected, f"the answer with loads of {ticks} steps", source="the cold one")
            same_answer(judge, tier_stage.ask(request), expected, "the answer after it", source="the cold one")


@claim(
    "tier.bytes.partial", source="tenstorrent/tt-xla#4190, waybarrios/vllm-mlx#385: a suffix over another's prefix; the old tail read again"
)
@requires(TierCap.EXACT_RESTORE)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.FLUSH)
def test_partial(tier_stage: TierStage, judge: Judge) -> None:
    """Prompts that go on differently from a shared beginning have the answers that each has cold, whoever comes first and again after."""
    beginning = tier_stage.ids(chunks=2)
    prompts = [beginning + tier_stage.ids(chunks=chunks, extra=5, of=chunks + 1) for chunks in (2, 0, 1, 3)]
    requests = [_request(tier_stage, prompt) for prompt in prompts]
    cold = []
    for request in requests:
        tier_stage.quiesce()
        tier_stage.flush()
        cold.append(tier_stage.ask(request))
    tier_stage.quiesce()
    tier_stage.flush()

    for number in (0, 1, 2, 3, 0, 2, 1):
        warm = tier_stage.ask(requests[number])
        same_answer(judge, warm, cold[number], f"the answer to prompt {number}", source="the cold one")
    judge.taken(warm.cached_tokens or 0, "tokens reused")


@claim("tier.bytes.anew", source="issue: right bytes; what a network without this cache computes, chunk by chunk")
@requires(TierCap.LAB)
@requires(TierCap.LOGITS)
def test_anew(tier_stage: TierStage, judge: Judge, workload: Workload) -> None:
    """Cold, warm from the device and warm from the host, an answer has the bits of the same network without a paged cache."""
    for extra in (1, 0, tier_stage.page - 1):
        prompt = tier_stage.prompt(chunks=3, pages=workload.pages, extra=extra, of=extra)
        request = _request(tier_stage, prompt, new=2 * workload.new_tokens)
        expected = tier_stage.engine.lab.anew(request)
        tier_stage.flush()
        for what in ("cold", "warm from the device", "warm from the host"):
            answer = tier_stage.ask(request)
            judge.taken(what == "cold" or answer.cached_tokens or 0, f"tokens reused, {what}")
            same_answer(judge, answer, expected, f"the answer, {what}", source="the network without a cache")
            if what != "cold":
                tier_stage.drop_device()


@claim(
    "tier.bytes.shared_prefix", source="tenstorrent/tt-xla#4190: on a hit the suffix is written from the first block of the shared prefix"
)
@requires(TierCap.LAB)
@requires(TierCap.TOKEN_IDS)
def test_shared_prefix(tier_stage: TierStage, judge: Judge) -> None:
    """A request that goes on from kept pages leaves their bits as they are."""
    request = tier_stage.request(tier_stage.ids(chunks=2, extra=1))
    tier_stage.ask(request)
    pages = range(2 * tier_stage.chunk // tier_stage.page)
    before = [tier_stage.page_kept(Tier.DEVICE, request, index) for index in pages]
    for of in (1, 2):
        other = tier_stage.ask(tier_stage.request(tier_stage.ids(chunks=2) + tier_stage.ids(chunks=1, extra=of, of=of)))
        judge.taken(other.cached_tokens or 0, "tokens that the others reused")

    for index in pages:
        after = tier_stage.page_kept(Tier.DEVICE, request, index)
        for group, bits in (before[index] or {}).items():
            judge.same_bits((after or {}).get(group), bits, f"page {index}, group {group}", source="before the others")


@claim(
    "tier.bytes.corrupt_full",
    source="issue: corrupting a restored page of a full-attention layer changes the logits; the twin of exact restore",
)
@requires(TierCap.LAB)
@requires(TierCap.LOGITS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
def test_corrupt_full(tier_stage: TierStage, judge: Judge) -> None:
    """What the host holds is what is computed with: another value in any page of a layer that attends to everything changes the logits."""
    groups = [group for group in tier_stage.engine.policy.groups if group.window is None]
    judge.taken(len(groups), "groups that attend to everything")
    request = _request(tier_stage, tier_stage.ids(chunks=4, extra=1))
    tier_stage.ask(request)
    for index in (0, 3 * tier_stage.chunk // tier_stage.page, 4 * tier_stage.chunk // tier_stage.page - 1):
        cold, spoilt = _spoil(tier_stage, request, index, groups[0].name)
        changed = not torch.equal(spoilt.logits, cold.logits)
        judge.demand(
            changed, got=f"the same logits with page {index} of group {groups[0].name} spoilt on the host", expected="other logits"
        )


@claim("tier.bytes.corrupt_sliding", source="issue: sliding layers keep their window only; Blaizzy/mlx-vlm#1715, vllm#51756")
@requires(TierCap.LAB)
@requires(TierCap.LOGITS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
def test_corrupt_sliding(tier_stage: TierStage, judge: Judge) -> None:
    """In a layer that attends to a window, a page outside of it changes nothing, whatever it holds, and a page inside it does."""
    groups = [group for group in tier_stage.engine.policy.groups if group.window is not None]
    judge.taken(len(groups), "groups that attend to a window")
    name, window = groups[0].name, groups[0].window or 0
    # The first token that is computed anew attends to `window` positions, itself included.
    chunks = 2 + -(-window // tier_stage.chunk)
    hit = chunks * tier_stage.chunk
    outside, inside = (hit - window + 1) // tier_stage.page - 1, hit // tier_stage.page - 1
    request = _request(tier_stage, tier_stage.ids(chunks=chunks, extra=1))
    tier_stage.ask(request)
    for index in (0, outside):
        cold, spoilt = _spoil(tier_stage, request, index, name)
        same_answer(judge, spoilt, cold, f"the answer with page {index} of group {name} spoilt", source="the whole page")
    cold, spoilt = _spoil(tier_stage, request, inside, name)
    judge.differ(spoilt.logits, cold.logits, f"logits with page {inside} of group {name} spoilt and whole")


@claim("tier.bytes.together", source="vllm#51187: a promise of equal bits must hold under load, over hits too")
@requires(TierCap.EXACT_RESTORE)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.BATCH)
@requires(TierCap.FLUSH)
def test_together(tier_stage: TierStage, judge: Judge) -> None:
    """Requests that run at once over shared and restored pages have the answers that each has alone and cold."""
    plan = [(3, 0), (2, 0), (3, 0), (2, 1), (1, 1), (3, 2), (3, 2), (1, 0)]
    requests = [_request(tier_stage, tier_stage.prompt(chunks=chunks, extra=1, of=of)) for chunks, of in plan]
    alone = []
    for request in requests:
        tier_stage.quiesce()
        tier_stage.flush()
        alone.append(tier_stage.ask(request))
    if tier_stage.offers(TierCap.DROP_DEVICE):
        tier_stage.drop_device()
    for turn in ("first", "second"):
        completions = tier_stage.ask_all(requests, together=True)
        judge.taken(sum(completion.cached_tokens or 0 for completion in completions), "tokens reused")
        for number, completion in enumerate(completions):
            same_answer(judge, completion, alone[number], f"the {turn} answer to request {number} of many at once", source="the one alone")


@claim("tier.bytes.pressure", source="issue: prompts under pressure, passes over them, a long canary prompt at the end")
@requires(TierCap.EXACT_RESTORE)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
def test_pressure(tier_build: MakeTierStage, judge: Judge, workload: Workload) -> None:
    """Under pressure on both tiers each pass gives each prompt the answer of the first, and a long prompt its own at the end."""
    check_pressure(tier_build, judge, workload, workload.pressed_prompts)


@pytest.mark.soak
@claim("tier.bytes.long_pressure", source="issue: 200 prompts under pressure, three passes, a long canary prompt at the end")
@requires(TierCap.EXACT_RESTORE)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
def test_long_pressure(tier_build: MakeTierStage, judge: Judge, workload: Workload) -> None:
    """Under pressure on both tiers, 200 prompts have the answers of the first pass in each pass, and a long prompt its own at the end."""
    check_pressure(tier_build, judge, workload, workload.pressure_prompts)


def check_pressure(tier_build: MakeTierStage, judge: Judge, workload: Workload, prompts: int) -> None:
    """The host holds two thirds of the prompts, the device an eighth; a few are asked at a time, and every other pass goes backwards."""
    # The canary takes the whole device pool but one chunk, or what the engine has room for.
    device = max(8, prompts // 4)
    stage = tier_build(device_chunks=device, host_chunks=4 * prompts // 3, max_running=2)
    canary = _request(stage, stage.ids(chunks=device - 1, extra=1, of=prompts))
    if stage.engine.max_prompt_tokens is not None:
        canary = replace(canary, prompt=canary.prompt[: stage.engine.max_prompt_tokens - canary.max_new_tokens])
    expected = stage.ask(canary)
    requests = [_request(stage, stage.ids(chunks=2, extra=1 + number % stage.page, of=number)) for number in range(prompts)]
    first: list[Completion] = []
    hits = 0
    for turn in range(workload.pressure_passes):
        order = list(range(prompts))[:: -1 if turn % 2 else 1]
        answers = dict(zip(order, stage.ask_all([requests[number] for number in order], together=True), strict=True))
        for number in order:
            stage.finished(answers[number], f"prompt {number} in pass {turn}")
            stage.within_bounds(answers[number], what=f"prompt {number} in pass {turn}")
        if not turn:
            first = [answers[number] for number in range(prompts)]
            continue
        for number in order:
            hits += answers[number].cached_tokens or 0
            same_answer(judge, answers[number], first[number], f"the answer to prompt {number} in pass {turn}", source="pass 0")
    judge.taken(hits, "tokens reused under pressure")
    same_answer(judge, stage.ask(canary), expected, "the answer to the long prompt at the end", source="the one at the start")


def same_answer(judge: Judge, got: Completion, expected: Completion, what: str, *, source: str) -> None:
    """The text, the tokens where the engine gives them, and the bits of the logits where it gives those."""
    __tracebackhide__ = True
    judge.equal(got.outcome, expected.outcome, f"outcome of {what}", source=source)
    judge.equal(got.token_ids, expected.token_ids, f"tokens of {what}", source=source)
    judge.equal(got.text, expected.text, f"text of {what}", source=source)
    if expected.logits is not None:
        judge.same_bits(got.logits, expected.logits, f"logits of {what}", source=source, axes=("token", "id"))


def _request(stage: TierStage, prompt: str | tuple[int, ...], new: int | None = None) -> Request:
    """With logits, where the engine has any."""
    return stage.request(prompt, max_new_tokens=new or stage.workload.new_tokens, want_logits=stage.offers(TierCap.LOGITS))


def _spoil(stage: TierStage, request: Request, index: int, group: str) -> tuple[Completion, Completion]:
    """The answer over restored pages, and the one with one value another in a page of one group on the host. The page is mended again."""
    stage.drop_device()
    whole = stage.ask(request)
    stage.drop_device()
    page = stage.page_kept(Tier.HOST, request, index)
    if page is None:
        raise AssertionError(f"page {index} of the prompt is not on the host")
    stage.engine.lab.write_page(Tier.HOST, request, index, group, page[group] + 1)
    spoilt = stage.ask(request)
    stage.judge.taken(spoilt.tiers.host if spoilt.tiers else 0, "tokens from the host")
    stage.drop_device()
    stage.engine.lab.write_page(Tier.HOST, request, index, group, page[group])
    return whole, spoilt


def _differ(judge: Judge, pages: list) -> None:
    """The twin: no two pages of a prompt are the same bits, or a page in another's place would not show."""
    for index, page in enumerate(pages[1:], 1):
        for group, bits in (page or {}).items():
            judge.differ(bits, pages[index - 1][group], f"pages {index - 1} and {index} of group {group}")
