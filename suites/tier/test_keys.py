"""A page is kept under everything that it depends on: the same tokens of another owner never hit, in any tier."""

from collections.abc import Sequence
from dataclasses import replace

from fixtures.tier import MakeTierStage, TierStage
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.tier.protocol import Completion, Request
from harness.tier.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=6, suite="tier-cpu")
register_cuda_ci(est_time=60, suite="tier-h100")

IMAGE = bytes(range(64))


@claim(
    "tier.keys.salt",
    source="vllm#53347: different salts, no reuse; and reuse under the same, or it says nothing",
)
@requires(TierCap.SALT)
@requires(TierCap.CACHED_TOKENS)
def test_salt(tier_stage: TierStage, judge: Judge) -> None:
    """The same prompt under another salt, or none, never hits, and under the same one it does; the answer is the same."""
    prompt = _request(tier_stage, chunks=2)
    answers = check_apart(tier_stage, [prompt, *(replace(prompt, salt=salt) for salt in ("tenant-a", "tenant-b"))], host=False)

    for answer in answers[1:]:
        judge.equal(answer.token_ids, answers[0].token_ids, "tokens under a salt", source="the prompt without")


@claim("tier.keys.salt_host", source="vllm#53495, sglang#24568: a salt honoured on the device and ignored by an outer tier")
@requires(TierCap.SALT)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.FLUSH)
def test_salt_host(tier_stage: TierStage, judge: Judge) -> None:
    """What the host keeps of a prompt is hit under its own salt, and never under another, or none."""
    prompt = _request(tier_stage, chunks=2)
    check_apart(tier_stage, [replace(prompt, salt="tenant-a"), prompt, replace(prompt, salt="tenant-b")])


@claim("tier.keys.salts_alike", source="a salt is a text: what trims, folds, joins or cuts it lets two tenants share")
@requires(TierCap.SALT)
@requires(TierCap.CACHED_TOKENS)
def test_salts_alike(tier_stage: TierStage, judge: Judge) -> None:
    """Salts that are nearly the same text keep prompts apart: in case, spaces, length, one last letter, or composition of a character."""
    prompt, long = _request(tier_stage, chunks=1), "tenant-" * 40
    salts = ["a", "A", "a ", " a", "aa", "a\0", "a\0b", "\u00e9", "e\u0301", "0", "00", "None", long + "1", long + "2"]
    check_apart(tier_stage, [replace(prompt, salt=salt) for salt in salts], host=False)


@claim(
    "tier.keys.salt_empty", source="protocol: Request, a salt is a text; one that is taken for no salt lets a tenant share with everybody"
)
@requires(TierCap.SALT)
@requires(TierCap.CACHED_TOKENS)
def test_salt_empty(tier_stage: TierStage, judge: Judge) -> None:
    """A salt that is the empty text is refused, or keeps a prompt apart from the same one without a salt."""
    plain = _request(tier_stage, chunks=1)
    tier_stage.ask(plain)
    got = judge.attempt(lambda: tier_stage.ask(replace(plain, salt="")))
    judge.equal(got.cached_tokens if got is not None else 0, 0, "tokens that the prompt with an empty salt reused")
    judge.taken(tier_stage.ask(plain).cached_tokens or 0, "tokens that the prompt without a salt reused")


@claim("tier.keys.salt_not_tokens", source="a key made by joining texts: the end of a salt is no beginning of a prompt")
@requires(TierCap.SALT)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_salt_not_tokens(tier_stage: TierStage, judge: Judge) -> None:
    """A salt that spells tokens is no part of the prompt: neither those before the same tokens nor those at their start."""
    page, prompt = tier_stage.ids(pages=1, of=1), tier_stage.ids(chunks=1, extra=1)
    spelt = [str(page), ",".join(map(str, page)), str(page[0]), repr(page[:1])]
    requests = [tier_stage.request(prompt), tier_stage.request(page + prompt)]
    requests += [tier_stage.request(prompt, salt=salt) for salt in spelt]
    check_apart(tier_stage, requests, host=False)


@claim("tier.keys.adapter", source="vllm#30931, #44250, #3264: adapter B hits what adapter A computed")
@requires(TierCap.ADAPTER)
@requires(TierCap.CACHED_TOKENS)
def test_adapter(tier_stage: TierStage, judge: Judge) -> None:
    """The same prompt with another adapter, or none, never hits, in any tier, and with the same one it does; each gives its own answer."""
    prompt = _request(tier_stage, chunks=2)
    owners = [prompt, *(replace(prompt, adapter=name) for name in tier_stage.engine.adapters)]
    check_answers_differ(judge, check_apart(tier_stage, owners))


@claim("tier.keys.version", source="vllm#42495, tokenspeed#1125: weights reloaded under the same name keep old entries")
@requires(TierCap.MODEL_VERSION)
@requires(TierCap.CACHED_TOKENS)
def test_version(tier_stage: TierStage, judge: Judge) -> None:
    """The same prompt with another version of the weights never hits, in any tier, with the same one it does; each has its own answer."""
    prompt = _request(tier_stage, chunks=2)
    check_answers_differ(judge, check_apart(tier_stage, [replace(prompt, model_version=name) for name in tier_stage.engine.versions]))


@claim("tier.keys.default_version", source="protocol: versions, the default first")
@requires(TierCap.MODEL_VERSION)
@requires(TierCap.CACHED_TOKENS)
def test_default_version(tier_stage: TierStage, judge: Judge) -> None:
    """A prompt without a version reuses what the default version, named, left, and has its answer."""
    prompt = _request(tier_stage, chunks=2)
    named = tier_stage.ask(replace(prompt, model_version=tier_stage.engine.versions[0]))
    unnamed = tier_stage.ask(prompt)

    judge.demand(bool(unnamed.cached_tokens), got="no token reused without a version", expected="what the default version left")
    judge.equal(unnamed.token_ids, named.token_ids, "tokens without a version", source="the default version")


@claim(
    "tier.keys.media",
    source="LMCache#690, ROCm/ATOM#1358: only placeholder tokens are in the key, and a second image is answered as the first",
)
@requires(TierCap.MEDIA)
@requires(TierCap.CACHED_TOKENS)
def test_media(tier_stage: TierStage, judge: Judge) -> None:
    """The same prompt under another image, or none, never hits, in any tier, and under the same one it does; each gives its own answer."""
    prompt = _request(tier_stage, chunks=2)
    images = [IMAGE, IMAGE[:-1] + b"\0", b"\1" + IMAGE[1:], IMAGE[:-1], IMAGE[::-1], 512 * IMAGE, (512 * IMAGE)[:-1] + b"\0"]
    check_answers_differ(judge, check_apart(tier_stage, [prompt, *(replace(prompt, media=image) for image in images)]))


@claim("tier.keys.names_apart", source="a key made by joining fields: what one field says is not said by another")
@requires(TierCap.SALT)
@requires(TierCap.ADAPTER)
@requires(TierCap.CACHED_TOKENS)
def test_names_apart(tier_stage: TierStage, judge: Judge) -> None:
    """A salt that is an adapter's name, a version's, or an image's text is none of these."""
    prompt, stage = _request(tier_stage, chunks=1), tier_stage
    names = list(stage.engine.adapters)
    requests = [prompt, *(replace(prompt, adapter=name) for name in names), *(replace(prompt, salt=name) for name in names)]
    requests += [replace(prompt, adapter=one, salt=other) for one in names for other in names]
    if stage.offers(TierCap.MODEL_VERSION):
        requests += [replace(prompt, model_version=stage.engine.versions[-1])]
        requests += [replace(prompt, salt=name) for name in stage.engine.versions if name not in names]
    if stage.offers(TierCap.MEDIA):
        requests += [replace(prompt, media=b"cat"), replace(prompt, salt="cat"), replace(prompt, salt=str(b"cat"))]
    check_apart(stage, requests, host=False)


@claim("tier.keys.position", source="chained page hashes: a page is kept under the key of the page before")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_position(tier_stage: TierStage, judge: Judge) -> None:
    """Tokens hit only after the tokens that they were computed after: not elsewhere, in another order, or after another start."""
    one, two, three = (tier_stage.ids(chunks=1, of=of) for of in range(3))
    tail = tier_stage.ids(extra=1, of=3)
    kept = one + two + three + tail
    tier_stage.ask_agreeing(kept, "the first")
    for prompt, hit in (
        (two + three, 0),
        (two + one, 0),
        (three + two + one, 0),
        (one + three + two, 1),
        (one + one + two, 1),
        (one + two + three, 3),
    ):
        told = tier_stage.ask_agreeing(prompt + tail, f"{len(prompt) // tier_stage.chunk} chunks of it in another order")
        if hit < 3:
            judge.demand(
                told <= hit * tier_stage.chunk, got=f"{told} tokens reused", expected=f"{hit} chunks at most: those in their place"
            )
        else:
            judge.taken(told, "tokens reused in their own order")
        # What it left must not be hit by the next.
        if tier_stage.offers(TierCap.FLUSH):
            tier_stage.quiesce()
            tier_stage.flush()
            tier_stage.ask_agreeing(kept, "the first again")


@claim("tier.keys.distinct", source="LMCache#4783, vllm#12621, #15297: few bits of a hash, and another request's keys and values")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_distinct(tier_stage: TierStage, judge: Judge, workload: Workload) -> None:
    """Of many prompts that differ from the start, none hits another, however many are kept."""
    prompts = [tier_stage.request(tier_stage.ids(chunks=1, extra=1, of=of), max_new_tokens=1) for of in range(workload.distinct_prompts)]
    for number, completion in enumerate(tier_stage.ask_all(prompts, together=tier_stage.offers(TierCap.BATCH))):
        tier_stage.finished(completion)
        judge.equal(completion.cached_tokens, 0, f"tokens that prompt {number} of {len(prompts)} reused", source="none began like it")
    judge.taken(tier_stage.ask(prompts[-1]).cached_tokens or 0, "tokens that the last one reuses again")


@claim("tier.keys.diverging", source="a page's key holds every token of it: the first, the last, and each in between")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_diverging(tier_stage: TierStage, judge: Judge) -> None:
    """A prompt that differs from a kept one in a single token of its first page hits nothing, whichever token it is."""
    kept = tier_stage.ids(chunks=1, extra=1)
    tier_stage.ask_agreeing(kept, "the first")
    for place in range(tier_stage.page):
        other = list(kept)
        other[place] = (other[place] + 1) % tier_stage.vocabulary
        judge.equal(tier_stage.ask_agreeing(tuple(other)), 0, f"tokens reused with token {place} another", source="page arithmetic")
    judge.taken(tier_stage.ask_agreeing(kept, "the first again"), "tokens reused with every token the same")


@claim("tier.keys.together", source="LMCache#3770: a lock, or a request that waits for another's page, is looked up by its key too")
@requires(TierCap.SALT)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.BATCH)
def test_together(tier_stage: TierStage, judge: Judge) -> None:
    """Requests of many owners with the same tokens at once never hit one another's pages, at once and afterwards."""
    prompt = _request(tier_stage, chunks=2)
    owners = [replace(prompt, salt=salt) for salt in ("tenant-a", "tenant-b", "tenant-c")] + [prompt]
    for completion in tier_stage.ask_all(owners, together=True):
        tier_stage.finished(completion)
        judge.equal(completion.cached_tokens, 0, "tokens that one of the owners at once reused", source="each is the first of its owner")
    again = tier_stage.ask_all([owners[0], replace(prompt, salt="tenant-d")], together=True)

    judge.taken(again[0].cached_tokens or 0, "tokens reused by an owner")
    judge.equal(again[1].cached_tokens, 0, "tokens that a new owner reused")


@claim("tier.keys.collision", source="vllm#12621, #15297: a constructed collision gives another request's keys and values")
@requires(TierCap.LAB)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_collision(tier_build: MakeTierStage, judge: Judge) -> None:
    """When all keys have the same hash, prompts and owners still hit their own pages alone, and have their own answers."""
    stage = tier_build()
    requests = [_request(stage, chunks=2, of=of) for of in range(4)]
    if stage.offers(TierCap.SALT):
        requests += [replace(requests[0], salt="tenant-a"), replace(requests[0], salt="tenant-b")]
    cold = stage.ask_all(requests)
    stage.quiesce()
    stage.flush()
    stage.engine.lab.collide()
    collided = check_apart(stage, requests, host=stage.offers(TierCap.HOST_TIER) and stage.offers(TierCap.DROP_DEVICE))

    for number, (answer, expected) in enumerate(zip(collided, cold, strict=True)):
        judge.equal(answer.token_ids, expected.token_ids, f"tokens of request {number}", source="the answer before all keys collided")


@claim("tier.keys.collision_behind", source="chained page hashes; vllm#12621, #15297: a page is found by its hash, whatever is before it")
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.LAB)
def test_collision_behind(tier_build: MakeTierStage, judge: Judge) -> None:
    """When all keys have the same hash, a chunk is hit behind the tokens that it was computed behind, and behind no others."""
    stage = tier_build()
    first, other, behind, end = (stage.ids(chunks=1, of=of) for of in range(4))
    stage.engine.lab.collide()
    for prompt in (first + behind, other + end):
        stage.ask(stage.request(prompt + end[:1]))
    mixed = stage.request(other + behind + end[:1], want_logits=stage.offers(TierCap.LOGITS))
    got = stage.ask(mixed)
    judge.equal(
        got.cached_tokens, stage.chunk, "tokens reused of a prompt that begins as one and goes on as another", source="page arithmetic"
    )
    judge.equal(got.token_ids, stage.engine.lab.anew(mixed).token_ids, "its tokens", source="the same network without a cache")


def check_apart(stage: TierStage, requests: Sequence[Request], *, host: bool = True) -> list[Completion]:
    """No request hits what the others left, and each hits what it left itself: on the device, and then on the host where there is one.

    Gives the cold answers.
    """
    __tracebackhide__ = True
    judge = stage.judge
    cold: list[Completion] = []
    for number, request in enumerate(requests):
        cold.append(stage.ask(request))
        stage.agrees(cold[-1], f"owner {number}")
        judge.equal(cold[-1].cached_tokens, 0, f"tokens that owner {number} reused on the device", source="only other owners asked before")
    for number, request in enumerate(requests):
        _own(stage, request, cold[number], f"owner {number} on the device")
    if not host or not (stage.offers(TierCap.HOST_TIER) and stage.offers(TierCap.DROP_DEVICE) and stage.offers(TierCap.FLUSH)):
        return cold
    # One owner's pages on the host alone, and then each other owner.
    for number, request in enumerate(requests[:2]):
        stage.quiesce()
        stage.flush()
        stage.ask(request)
        for other in (*requests[:number], *requests[number + 1 :]):
            stage.drop_device()
            completion = stage.ask(other)
            stage.agrees(completion, "another owner")
            judge.equal(
                completion.cached_tokens, 0, f"tokens that another owner reused of owner {number}'s on the host", source="only owner's own"
            )
        stage.drop_device()
        _own(stage, request, cold[number], f"owner {number} on the host")
    return cold


def _own(stage: TierStage, request: Request, cold: Completion, who: str) -> None:
    __tracebackhide__ = True
    warm = stage.ask(request)
    stage.agrees(warm, who)
    stage.judge.demand(
        bool(warm.cached_tokens), got=f"{who} reused no token of its own", expected="a hit, or that others have none says nothing"
    )
    if stage.offers(TierCap.EXACT_RESTORE):
        stage.judge.equal(warm.token_ids, cold.token_ids, f"tokens of {who}, warm", source="its cold answer")
        stage.judge.equal(warm.text, cold.text, f"text of {who}, warm", source="its cold answer")


def check_answers_differ(judge: Judge, answers: Sequence[Completion]) -> None:
    """The twin: what the owners are apart in has an effect, so that one's pages under another's prompt would be wrong."""
    __tracebackhide__ = True
    for number, answer in enumerate(answers):
        for before in answers[:number]:
            if answer.logits is not None and before.logits is not None:
                judge.differ(answer.logits, before.logits, "logits of two owners")


def _request(stage: TierStage, *, chunks: int, of: int = 0) -> Request:
    """With logits, where the engine has any."""
    return stage.request(stage.prompt(chunks=chunks, extra=1, of=of), want_logits=stage.offers(TierCap.LOGITS))
