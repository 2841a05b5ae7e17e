"""What is reused is counted: each request says how many of its tokens came from which tier, as page arithmetic and the policy have it."""

from fixtures.tier import MakeTierStage, TierStage
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.tier.protocol import Outcome, TierHits
from harness.tier.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=4, suite="tier-cpu")
register_cuda_ci(est_time=60, suite="tier-h100")


@claim("tier.accounting.cold", source="spec 3.1; vllm#53347: a count that is right when nothing is kept, before one that says reuse")
@requires(TierCap.CACHED_TOKENS)
def test_cold(tier_stage: TierStage, judge: Judge, workload: Workload) -> None:
    """Prompts of which nothing is kept reuse no token."""
    for number in range(4):
        completion = tier_stage.ask(tier_stage.request(tier_stage.prompt(workload.pages, extra=number + 1, of=number)))
        tier_stage.finished(completion)
        judge.equal(completion.cached_tokens, 0, f"tokens that prompt {number} reused", source="an empty cache")


@claim("tier.accounting.bounds", source="issue: never more than floor((n - 1) / page) * page; device + host = total")
@requires(TierCap.CACHED_TOKENS)
def test_bounds(tier_stage: TierStage, judge: Judge, workload: Workload) -> None:
    """No request reuses more than the whole pages before its last token, and its tiers add up to its total."""
    requests = [tier_stage.request(tier_stage.prompt(pages, extra, of=pages)) for pages in (1, workload.pages) for extra in (0, 1, 5)]
    requests.append(tier_stage.request(tier_stage.prompt(chunks=1, extra=1)))
    again = [completion for _ in range(2) for completion in tier_stage.ask_all(requests)]
    for number, completion in enumerate(again):
        tier_stage.finished(completion)
        tier_stage.within_bounds(completion, what=f"request {number}")
    judge.taken(sum(completion.cached_tokens or 0 for completion in again[len(requests) :]), "tokens reused")


@claim("tier.accounting.warm", source="issue: exact accounting, warm; ENGINES.md: 576 of 581 with pages of 16")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_warm(tier_stage: TierStage, judge: Judge, workload: Workload) -> None:
    """A prompt asked again reuses all that is kept of it, each time the same."""
    request = tier_stage.request(tier_stage.ids(chunks=2, pages=workload.pages, extra=3))
    first, *again = tier_stage.ask_all([request] * 3)

    tier_stage.agrees(first, "the first")
    for completion in again:
        tier_stage.agrees(completion, "the same again")
        judge.taken(completion.cached_tokens or 0, "tokens reused")


@claim("tier.accounting.partial", source="issue: exact accounting, partial; a prefix is shared up to where the prompts part")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_partial(tier_stage: TierStage, judge: Judge) -> None:
    """A prompt that begins as an earlier one did reuses what is kept of that beginning, wherever the two part."""
    page, chunk = tier_stage.page, tier_stage.chunk
    whole = tier_stage.ids(chunks=4, extra=1)
    tier_stage.agrees(tier_stage.ask(tier_stage.request(whole)), "the first")
    hits = 0
    for number, part in enumerate(sorted({1, page - 1, page, chunk - 1, chunk, chunk + 1, 2 * chunk - 1, 3 * chunk + 1})):
        other = tier_stage.ids(chunks=2, extra=1, of=number + 1)
        parting = whole[:part] + tuple((token + (token == whole[part])) % tier_stage.vocabulary for token in other[:1]) + other[1:]
        hits += tier_stage.ask_agreeing(parting, f"a prompt that parts after {part} tokens")
    judge.taken(hits, "tokens reused")


@claim("tier.accounting.lengths", source="issue: one token, exactly one page and one to either side; the last token is always computed")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_lengths(tier_stage: TierStage, judge: Judge) -> None:
    """Prompts of one token, a page, a chunk and two chunks, a token less and a token more, reuse what the policy says when asked again."""
    page, chunk = tier_stage.page, tier_stage.chunk
    hits = 0
    for tokens in sorted({1, 2, page - 1, page, page + 1, chunk - 1, chunk, chunk + 1, 2 * chunk - 1, 2 * chunk, 2 * chunk + 1} - {0}):
        prompt = tier_stage.ids(extra=tokens, of=tokens)
        tier_stage.ask_agreeing(prompt, f"{tokens} tokens, cold")
        hits += tier_stage.ask_agreeing(prompt, f"{tokens} tokens, warm")
    judge.taken(hits, "tokens reused")


@claim("tier.accounting.longer", source="issue: exact accounting, partial; a conversation grows turn by turn")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_longer(tier_stage: TierStage, judge: Judge) -> None:
    """A prompt that goes on where a shorter one ended reuses all that is kept of that one, and the shorter one of the longer."""
    turns = [tier_stage.ids(extra=tokens) for tokens in range(tier_stage.page, 4 * tier_stage.chunk, tier_stage.chunk - 1)]
    hits = [tier_stage.ask_agreeing(turn, f"{len(turn)} tokens") for turn in (*turns, *reversed(turns))]
    judge.taken(hits[len(turns) - 1], "tokens that the longest turn reused")


@claim("tier.accounting.answer", source="protocol, Policy: whole chunks of the prompt are kept, and not what was decoded")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.POLICY)
def test_answer(tier_stage: TierStage, judge: Judge) -> None:
    """A prompt that holds an earlier one's answer reuses the chunks of that prompt, and none that the answer reaches into."""
    prompt = tier_stage.ids(chunks=2, extra=tier_stage.chunk - 3)
    answer = tier_stage.ask(tier_stage.request(prompt, max_new_tokens=8))
    tier_stage.agrees(answer, "the question")
    judge.equal(len(answer.token_ids or ()), 8, "new tokens")

    hits = tier_stage.ask_agreeing(prompt + tuple(answer.token_ids or ()) + tier_stage.ids(extra=4, of=1), "the question with its answer")
    judge.taken(hits, "tokens reused")


@claim("tier.accounting.host", source="issue: cached tokens in each tier; a prefix that left the device is the host's")
@requires(TierCap.TIER_HITS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
def test_host(tier_stage: TierStage, judge: Judge) -> None:
    """What the device let go is counted as the host's; what came back with it, as the device's the next time."""
    long, short = tier_stage.ids(chunks=3, extra=1), tier_stage.ids(chunks=1, extra=1)
    tier_stage.ask_agreeing(long, "the first")
    tier_stage.drop_device()
    host = tier_stage.ask(tier_stage.request(short))
    tier_stage.agrees(host, "its beginning, from the host")
    mixed = tier_stage.ask(tier_stage.request(long))
    tier_stage.agrees(mixed, "the whole, the beginning from the device and the rest from the host")
    device = tier_stage.ask(tier_stage.request(long))
    tier_stage.agrees(device, "the whole, from the device")

    chunk = tier_stage.chunk
    judge.equal(host.tiers and host.tiers.device, 0, "device tokens after drop_device")
    judge.taken(host.tiers.host if host.tiers else 0, "tokens from the host")
    if tier_stage.policy is not None:
        told = [host.tiers, mixed.tiers, device.tiers]
        expected = [TierHits(0, chunk), TierHits(chunk, 2 * chunk), TierHits(3 * chunk, 0)]
        judge.equal(told, expected, "tokens reused from host, both and device", source="page arithmetic")


@claim("tier.accounting.flushed", source="protocol: flush forgets everything that is kept, in all tiers")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.FLUSH)
def test_flushed(tier_stage: TierStage, judge: Judge, workload: Workload) -> None:
    """After a flush a prompt reuses nothing, from any tier, and afterwards all again."""
    request = tier_stage.request(tier_stage.prompt(chunks=2, pages=workload.pages, extra=1))
    judge.taken([completion.cached_tokens or 0 for completion in tier_stage.ask_all([request] * 2)][1], "tokens reused before the flush")
    tier_stage.quiesce()
    tier_stage.flush()

    judge.equal(tier_stage.ask(request).cached_tokens, 0, "tokens reused after the flush")
    judge.taken(tier_stage.ask(request).cached_tokens or 0, "tokens reused after that")


@claim("tier.accounting.evicted", source="issue: exact accounting, after eviction; a pool that holds less than is asked for")
@requires(TierCap.TIER_HITS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.SIZES)
def test_evicted(tier_build: MakeTierStage, judge: Judge) -> None:
    """With a small device pool and no host tier, each request reuses just what the policy has left there."""
    stage = tier_build(device_chunks=5, spare_pages=1, host="off")
    check_order(stage, judge)


@claim("tier.accounting.host_evicted", source="issue: host smaller than the working set; vllm#56871: capacity divided by the groups")
@requires(TierCap.TIER_HITS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
def test_host_evicted(tier_build: MakeTierStage, judge: Judge) -> None:
    """With a small device pool and a small host tier, each request reuses from either just what the policy has left there."""
    stage = tier_build(device_chunks=5, spare_pages=1, host_chunks=7, host="on")
    hits = check_order(stage, judge)
    judge.taken(sum(each.host for each in hits), "tokens from the host")


@claim("tier.accounting.aborted", source="issue: exact accounting, after abort; sglang#38319: an unfinished request's pages")
@requires(TierCap.TIER_HITS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.STEPPED)
@requires(TierCap.ABORT)
@requires(TierCap.POLICY)
def test_aborted(tier_stage: TierStage, judge: Judge) -> None:
    """Of a request that is aborted, after whichever step, the next one reuses the chunks that were computed, and no more."""
    hits = []
    for steps in range(1, 7):
        request = tier_stage.request(tier_stage.ids(chunks=3, extra=5, of=steps))
        handle = tier_stage.submit(request)
        tier_stage.pump(steps)
        tier_stage.abort(handle)
        aborted = tier_stage.result(handle)
        judge.equal(aborted and aborted.outcome, Outcome.ABORTED, f"outcome of one aborted after {steps} steps")
        tier_stage.quiesce()
        hits.append(tier_stage.ask_agreeing(request.prompt, f"one aborted after {steps} steps"))
    judge.taken(hits[-1], "tokens reused after the last abort")


@claim("tier.accounting.together", source="issue: exact accounting, in sequence and batched")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.BATCH)
def test_together(tier_stage: TierStage, judge: Judge) -> None:
    """Requests that run at once reuse what was kept before each was admitted: duplicates, prefixes of one another, and strangers."""
    kept = tier_stage.ids(chunks=2, extra=1)
    tier_stage.ask_agreeing(kept, "the first")
    tier_stage.quiesce()
    prompts = [
        kept,
        kept,
        tier_stage.ids(chunks=4, extra=2),
        tier_stage.ids(chunks=3, extra=1, of=1),
        tier_stage.ids(chunks=3, extra=1, of=1),
    ]
    prompts += [tier_stage.ids(chunks=1, extra=1), tier_stage.ids(chunks=3, of=1, extra=7), tier_stage.ids(chunks=1, of=2)]

    completions = tier_stage.ask_all([tier_stage.request(prompt) for prompt in prompts], together=True)

    for number, completion in enumerate(completions):
        tier_stage.agrees(completion, f"request {number} of {len(prompts)} at once")
    judge.taken(completions[0].cached_tokens or 0, "tokens reused")


@claim("tier.accounting.waiting", source="protocol, Policy: a request hits what is kept when it is admitted, in the order of coming")
@requires(TierCap.TIER_HITS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.SIZES)
@requires(TierCap.BATCH)
@requires(TierCap.POLICY)
def test_waiting(tier_build: MakeTierStage, judge: Judge) -> None:
    """More requests than may run, or than fit, are admitted in their order, and each reuses what those before it have kept by then."""
    stage = tier_build(device_chunks=9, host_chunks=16, max_running=2)
    plan = [(2, 0), (2, 0), (2, 0), (4, 1), (3, 2), (4, 1), (1, 0), (3, 2), (6, 3), (4, 1), (2, 0), (6, 3)]
    requests = [stage.request(stage.ids(chunks=chunks, extra=1, of=of), max_new_tokens=1 + of) for chunks, of in plan]

    completions = stage.ask_all(requests, together=True)

    for number, completion in enumerate(completions):
        stage.agrees(completion, f"request {number} of {len(plan)} at once, two running")
    judge.taken(sum(completion.cached_tokens or 0 for completion in completions), "tokens reused")


@claim("tier.accounting.retracted", source="sglang#11900, #4660: cached tokens counted again after a retraction, 122,884 of 59,946")
@requires(TierCap.TIER_HITS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.RETRACT)
@requires(TierCap.STEPPED)
def test_retracted(tier_stage: TierStage, judge: Judge) -> None:
    """A request that is retracted, once or twice, says what it reused when it was first admitted, and the next one what it left."""
    prompt = tier_stage.ids(chunks=4, extra=3)
    tier_stage.ask_agreeing(tier_stage.ids(chunks=1, extra=1), "its beginning")
    handle = tier_stage.submit(tier_stage.request(prompt))
    for _ in range(2):
        tier_stage.pump(3)
        tier_stage.retract(handle)
    tier_stage.agrees(tier_stage.finish([handle])[handle], "the request that was retracted twice")

    judge.taken(tier_stage.ask_agreeing(prompt, "the same again"), "tokens reused")


def check_order(stage: TierStage, judge: Judge) -> list[TierHits]:
    """Prompts of many lengths over less room than they take, asked in an order that uses some of them again soon and some late."""
    order = [
        (1, 0),
        (2, 1),
        (1, 0),
        (3, 2),
        (1, 0),
        (2, 1),
        (2, 3),
        (2, 1),
        (4, 2),
        (1, 0),
        (2, 3),
        (4, 4),
        (2, 1),
        (1, 0),
        (4, 2),
        (2, 3),
        (2, 3),
    ]
    told: list[TierHits] = []
    for number, (chunks, of) in enumerate(order):
        completion = stage.ask(stage.request(stage.ids(chunks=chunks, extra=1, of=of)))
        stage.quiesce()
        stage.agrees(completion, f"request {number} (prompt {of}, {chunks} chunks)")
        told.append(completion.tiers or TierHits(0, 0))
    repeated = {(chunks, of) for chunks, of in order if order.count((chunks, of)) > 1}
    judge.taken(sum(each.total for each in told), "tokens reused")
    missed = [number for number, each in enumerate(told) if order[number] in repeated and each.total < order[number][0] * stage.chunk]
    judge.taken(len(missed) - len(repeated), "requests of which something had gone")
    return told
