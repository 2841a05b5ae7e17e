"""Requests that can never be served are refused, and nothing is queued; the shortest and the oddest are served."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fixtures.tier import MakeTierStage, TierStage
from fixtures.tier_scene import MakeScene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Completion, Outcome, Request, Tier
from markers import register_ci, register_cuda_ci

register_ci(est_time=3, suite="tier-cpu")
register_cuda_ci(est_time=20, suite="tier-h100")

MALFORMED = (ValueError, TypeError)
"""A value that is not of the type named may be refused as either."""
UNKNOWN = "nobody has called anything by this name"
HUGE = 10**9
"""More tokens than any pool of today has room for."""


@claim("tier.input.empty_prompt", source="protocol: submit, ValueError for an empty prompt")
def test_empty_prompt(tier_stage: TierStage) -> None:
    """A prompt without a token is refused, and the server goes on."""
    _check_refused(tier_stage, {"an empty text": Request("")})


@claim("tier.input.empty_ids", source="protocol: submit, ValueError for an empty prompt")
@requires(TierCap.TOKEN_IDS)
def test_empty_ids(tier_stage: TierStage) -> None:
    """A prompt of no token ids is refused, and the server goes on."""
    _check_refused(tier_stage, {"no token ids": Request(())})


@claim("tier.input.over_the_limit", source="protocol: submit, ValueError for a prompt over the limit")
@requires(TierCap.TOKEN_IDS)
def test_over_the_limit(tier_stage: TierStage) -> None:
    """A prompt of one token more than the server's limit is refused, and the server goes on."""
    most = tier_stage.engine.max_prompt_tokens
    tier_stage.judge.taken(most or 0, "tokens of the longest prompt that the engine states")

    _check_refused(tier_stage, {f"{most + 1} tokens": Request(tier_stage.ids(extra=most + 1), max_new_tokens=1)})


@claim(
    "tier.input.media_counts", source="protocol: submit, ValueError for one over the whole pool; prompt_tokens counts those of the media"
)
@requires(TierCap.MEDIA)
@requires(TierCap.SIZES)
@requires(TierCap.POLICY)
def test_media_counts(tier_scene: MakeScene) -> None:
    """A prompt that fills the pool is served, and with an image before it refused, with nothing queued behind it."""
    page, new = tier_scene.shape.page, 2
    # Its positions, the last new token left out, end where a page does.
    more = page - (new - 1)
    scene = tier_scene(blocks=tier_scene.room(2, more=more, new=new), host="off")
    fills = scene.text(1, more=more, new=new)
    scene.judge.refused(lambda: scene.engine.submit(replace(fills, media=b"an image")), "a prompt and an image", (ValueError,))
    scene.judge.equal(scene.ask(fills).outcome, Outcome.FINISHED, "outcome of the prompt alone")
    scene.settled()


@claim("tier.input.new_tokens", source="protocol: Request, max_new_tokens is at least 1; submit, ValueError for one over the whole pool")
def test_new_tokens(tier_stage: TierStage) -> None:
    """No new tokens, fewer than none, and more than there is memory for are refused, and the server goes on."""
    prompt = tier_stage.prompt(1, 1)
    _check_refused(tier_stage, {f"{new} new tokens": Request(prompt, max_new_tokens=new) for new in (0, -1, HUGE)})


@claim("tier.input.salt", source="protocol: submit, ValueError for a salt that is no text")
@requires(TierCap.SALT)
def test_salt(tier_stage: TierStage) -> None:
    """A salt that is no text is refused, and the server goes on."""
    bad: list[Any] = [7, b"salt", ["salt"]]
    _check_refused(tier_stage, {f"salt {salt!r}": Request(tier_stage.prompt(1, 1), salt=salt) for salt in bad})


@claim("tier.input.vocabulary", source="protocol: submit, ValueError for an id outside the vocabulary")
@requires(TierCap.TOKEN_IDS)
def test_vocabulary(tier_stage: TierStage) -> None:
    """A token id below 0, or one that the vocabulary lacks, at either end of the prompt, is refused, and the server goes on."""
    ids = tier_stage.ids(extra=8)
    bad = (-1, tier_stage.engine.vocabulary, HUGE)
    first = {f"{one} as the first id": Request((one, *ids)) for one in bad}
    _check_refused(tier_stage, first | {f"{one} as the last id": Request((*ids, one)) for one in bad})


@claim("tier.input.adapter", source="protocol: submit, ValueError for an adapter that there is not")
@requires(TierCap.ADAPTER)
def test_adapter(tier_stage: TierStage) -> None:
    """An adapter that the server does not have is refused, and the server goes on."""
    names = (UNKNOWN, "", tier_stage.engine.adapters[0].upper() + " ")
    _check_refused(tier_stage, {f"adapter {name!r}": Request(tier_stage.prompt(1, 1), adapter=name) for name in names})


@claim("tier.input.version", source="protocol: submit, ValueError for a version that there is not")
@requires(TierCap.MODEL_VERSION)
def test_version(tier_stage: TierStage) -> None:
    """A version of the weights that the server does not have is refused, and the server goes on."""
    prompt = tier_stage.prompt(1, 1)
    _check_refused(tier_stage, {f"version {name!r}": Request(prompt, model_version=name) for name in (UNKNOWN, "")})


@claim("tier.input.handle", source="protocol: result, KeyError for a handle that there is not, or whose result was taken")
def test_handle(tier_stage: TierStage) -> None:
    """The result of a handle that there is not is refused; so is a result that was taken."""
    engine, judge = tier_stage.engine, tier_stage.judge
    handle = tier_stage.submit(_short(tier_stage, 1))
    judge.refused(lambda: engine.result(handle + 1), "the result of a handle that there is not", (KeyError,))
    _end(tier_stage, handle)

    judge.refused(lambda: engine.result(handle), "a result that was taken", (KeyError,))


@claim("tier.input.handle_to_abort", source="protocol: abort, KeyError as in result")
@requires(TierCap.ABORT)
def test_handle_to_abort(tier_stage: TierStage) -> None:
    """Aborting a handle that there is not, or whose result was taken, is refused, and ends nobody."""
    engine, judge = tier_stage.engine, tier_stage.judge
    gone = tier_stage.submit(_short(tier_stage, 1))
    _end(tier_stage, gone)
    handle = tier_stage.submit(_short(tier_stage, 2))
    for what, wrong in {"that there is not": handle + 1, "whose result was taken": gone}.items():
        judge.refused(lambda wrong=wrong: engine.abort(wrong), f"aborting a handle {what}", (KeyError,))

    judge.equal(_end(tier_stage, handle).outcome, Outcome.FINISHED, "outcome of the request that waits")


@claim("tier.input.one_token", source="an engine must compute at least the last token: there is nothing to hit")
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.CACHED_TOKENS)
def test_one_token(tier_stage: TierStage) -> None:
    """A prompt of one token is served, as often as it comes, with the same new tokens and nothing from a cache."""
    request = Request(tier_stage.ids(extra=1))
    first, second = (tier_stage.ask(request) for _ in range(2))

    for which, got in (("first", first), ("second", second)):
        tier_stage.judge.equal((got.prompt_tokens, got.cached_tokens), (1, 0), f"prompt and cached tokens at the {which} time")
    tier_stage.judge.equal(second.token_ids, first.token_ids, "new tokens", source="the first time")


@claim("tier.input.page_edges", source="tokens behind the last whole page are not kept; the last token is computed: vllm#5543")
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.EXACT_RESTORE)
def test_page_edges(tier_stage: TierStage) -> None:
    """Prompts one token short of some pages, of just so many, and of one more are served twice with the same tokens and hit whole pages."""
    # An engine that states no page may hit any number of tokens before the last.
    page, judge = tier_stage.engine.page_size or 1, tier_stage.judge
    unit = tier_stage.chunk
    hits = 0
    for tokens in [edge + beside for edge in sorted({tier_stage.page, unit, 2 * unit}) for beside in (-1, 0, 1)]:
        request = Request(tier_stage.ids(extra=tokens, of=tokens))
        cold, warm = tier_stage.ask(request), tier_stage.ask(request)
        judge.equal((cold.prompt_tokens, cold.cached_tokens), (tokens, 0), f"prompt and cached tokens of {tokens} tokens, cold")
        judge.equal(warm.token_ids, cold.token_ids, f"new tokens of {tokens} tokens, warm", source="the cold run")
        judge.demand(
            warm.cached_tokens % page == 0 and warm.cached_tokens <= (tokens - 1) // page * page,
            got=f"{tokens} tokens, of which {warm.cached_tokens} came from a cache",
            expected=f"whole pages of {page}, of the {tokens - 1} tokens before the last",
        )
        hits += warm.cached_tokens > 0
    judge.taken(hits, "prompts that hit")


@claim("tier.input.not_finite", source="tokenspeed#434, vllm#50283 (comment): keys that are not finite are kept, and served again")
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
def test_not_finite(tier_scene: MakeScene) -> None:
    """A request that meets keys that are not finite is answered right, or fails and says why; nothing of it spoils a later one."""
    scene = tier_scene()
    stem = scene.text(1, chunks=3)
    scene.ask(stem)
    longer = scene.request(stem.prompt + scene.ids(2, extra=1, of=99), max_new_tokens=4, want_logits=scene.offers(TierCap.LOGITS))
    beside = scene.text(98, new=8)
    first, group = scene.pages(Tier.DEVICE, stem)[0], next(group.name for group in scene.declared.groups if group.window is None)
    scene.judge.taken(int(first is not None), "the first page is kept")
    scene.engine.lab.write_page(Tier.DEVICE, stem, 0, group, torch.full_like((first or {})[group], torch.nan))
    handles = [scene.submit(beside), scene.submit(longer)]
    done = scene.finish(handles)
    scene.right(done[handles[0]], beside, "its neighbour")
    met = done[handles[1]]
    if met.outcome is Outcome.FAILED:
        scene.judge.demand(bool((met.error or "").strip()), got="FAILED without a reason", expected="the reason")
    else:
        scene.right(met, longer, "the request that met it")
    for request, who in ((longer, "the same prompt again"), (stem, "its stem"), (longer, "and once more")):
        scene.right(scene.ask(request), request, who)
    scene.settled()


@claim("tier.input.after_close", source="protocol: close frees everything, and may be called twice")
def test_after_close(tier_build: MakeTierStage) -> None:
    """A closed server holds nothing and refuses requests; closing it again does nothing."""
    stage = tier_build()
    engine, judge = stage.engine, stage.judge
    idle = dict(engine.usage())
    stage.ask(_short(stage, 1))
    stage.submit(_short(stage, 2))
    engine.pump()
    for _ in (1, 2):
        engine.close()
        held = judge.attempt(engine.usage)
        judge.equal(idle if held is None else dict(held), idle, "usage after the close", source="the server before its first request")

    judge.refused(lambda: engine.submit(_short(stage, 1)), "a request after the close")


def _check_refused(stage: TierStage, requests: Mapping[str, Request]) -> None:
    """Each is refused, while another waits on an engine that lets one wait, and nothing is queued for it; that one is served as alone."""
    __tracebackhide__ = True
    engine, judge = stage.engine, stage.judge
    served = _short(stage, 1)
    alone = stage.ask(served)
    handle = stage.submit(served) if stage.stepped else None
    before = dict(engine.usage())
    for what, request in requests.items():
        judge.stimulus = what
        judge.refused(lambda request=request: engine.submit(request), what, MALFORMED)
        judge.equal(dict(engine.usage()), before, f"usage after {what}", source="before it")
    after = stage.ask(served) if handle is None else _end(stage, handle)
    judge.equal((after.outcome, after.text), (Outcome.FINISHED, alone.text), "what the next request comes to", source="the same before")


def _short(stage: TierStage, number: int) -> Request:
    """A page and a token."""
    return stage.request(stage.prompt(1, 1, of=number), max_new_tokens=2)


def _end(stage: TierStage, handle: int) -> Completion:
    return stage.finish([handle])[handle]
