"""What a server says over HTTP: bad requests are refused as OpenAI refuses them, answers come whole or as a stream, and usage adds up."""

import asyncio
from typing import Any

import httpx

from fixtures.tier_http import ANSWER, COMPLETIONS, HttpStage, check_refusal
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from markers import register_ci, register_cuda_ci

register_ci(est_time=5, suite="tier-cpu")
register_cuda_ci(est_time=1, suite="tier-h100")

HUGE = (10**9, 10**30)


@claim("tier.http.bad_json", source="OpenAI API reference, errors: an object with message, type, param and code")
@requires(TierCap.HTTP)
def test_bad_json(tier_http: HttpStage) -> None:
    """A body that is no JSON, or no object, is refused with an error in OpenAI's shape."""
    for body in (b"{bad", b'{"model": "a"', b"", b"\xff\xfe", b"[]", b'"text"', b"7"):
        tier_http.refused(body, f"the body {body!r}")


@claim("tier.http.model_unknown", source="OpenAI API reference, errors: an object with message, type, param and code")
@requires(TierCap.HTTP)
def test_model_unknown(tier_http: HttpStage) -> None:
    """A model that is not served is refused, and the error names it."""
    tier_http.refused(tier_http.body("amber", model="no-such-model"), "an unknown model", names="no-such-model")


@claim("tier.http.model_missing", source="OpenAI API reference, completions: model is required")
@requires(TierCap.HTTP)
def test_model_missing(tier_http: HttpStage) -> None:
    """A request that names no model is refused, and the error names the field."""
    tier_http.refused(tier_http.body("amber", model=...), "a request without a model", names="model")


@claim("tier.http.prompt_empty", source="OpenAI API reference, errors: an object with message, type, param and code")
@requires(TierCap.HTTP)
def test_prompt_empty(tier_http: HttpStage) -> None:
    """A request without a prompt, or with an empty one, is refused, and the error names it."""
    for prompt in (..., "", [], [""]):
        tier_http.refused(tier_http.body(prompt), f"the prompt {prompt!r}", names="prompt")


@claim("tier.http.prompt_long", source="OpenAI API reference, errors: an object with message, type, param and code")
@requires(TierCap.HTTP)
def test_prompt_long(tier_http: HttpStage) -> None:
    """A prompt that is longer than the server takes is refused."""
    engine = tier_http.stage.engine
    tokens = (engine.max_prompt_tokens or engine.device_capacity or 0) + 1
    tier_http.refused(tier_http.body("amber " * tokens), f"a prompt of {tokens} words")


@claim("tier.http.types", source="OpenAI API reference, errors: an object with message, type, param and code")
@requires(TierCap.HTTP)
def test_types(tier_http: HttpStage) -> None:
    """A field of the wrong type is refused, and the error names it."""
    wrong: dict[str, list[Any]] = {
        "model": [5, ["a"]],
        "prompt": [5, {"text": "amber"}, [1, "amber"], [[1], "amber"], [1.5], [-1]],
        "max_tokens": ["four", 1.5, [4]],
        "temperature": ["cold", [0]],
        "stream": ["perhaps", [True]],
    }
    if tier_http.stage.offers(TierCap.SALT):
        wrong["cache_salt"] = [5, ["salt"]]
    for name, values in wrong.items():
        for value in values:
            tier_http.refused(tier_http.body("amber") | {name: value}, f"{name} = {value!r}", names=name)


@claim("tier.http.max_tokens", source="OpenAI API reference, errors: an object with message, type, param and code")
@requires(TierCap.HTTP)
def test_max_tokens(tier_http: HttpStage) -> None:
    """A number of new tokens that is 0, negative, or more than the server can give is refused."""
    for tokens in (0, -1, *HUGE):
        tier_http.refused(tier_http.body("amber", max_tokens=tokens), f"max_tokens = {tokens}")


@claim("tier.http.ids_outside", source="OpenAI API reference, errors: an object with message, type, param and code")
@requires(TierCap.HTTP)
@requires(TierCap.TOKEN_IDS)
def test_ids_outside(tier_http: HttpStage) -> None:
    """A prompt with a token id that the model does not have is refused."""
    vocabulary = tier_http.stage.engine.vocabulary or 0
    for id_ in (vocabulary, *HUGE):
        tier_http.refused(tier_http.body([1, id_]), f"token id {id_} of {vocabulary}")


@claim("tier.http.stream_refused", source="vllm-server: a stream that answers 200 before it refuses cannot be told from one that serves")
@requires(TierCap.HTTP)
def test_stream_refused(tier_http: HttpStage) -> None:
    """A bad request for a stream is refused by its status, before any event."""
    bad: dict[str, Any] = {"an empty prompt": {"prompt": ""}, "0 new tokens": {"max_tokens": 0}, "an unknown model": {"model": "no-such"}}
    if tier_http.stage.offers(TierCap.TOKEN_IDS):
        bad["a token id outside the vocabulary"] = {"prompt": [1, HUGE[0]]}
    for what, fields in bad.items():
        tier_http.refused(tier_http.body("amber", stream=True) | fields, f"a stream for {what}")


@claim("tier.http.refused_whole", source="OpenAI API reference, errors: an object with message, type, param and code")
@requires(TierCap.HTTP)
@requires(TierCap.TOKEN_IDS)
def test_refused_whole(tier_http: HttpStage) -> None:
    """A request with several prompts of which the last is bad is refused, and nothing goes on for the others."""
    good, idle = [1], tier_http.held()

    tier_http.refused(tier_http.body([good, [1, HUGE[0]]], max_tokens=tier_http.longest), "two prompts, the second bad")

    tier_http.judge.equal(tier_http.becomes(idle.__eq__), idle, "what is held after the refusal", source="before it")


@claim("tier.http.refusals_harmless", source="a server outlives its clients' mistakes")
@requires(TierCap.HTTP)
def test_refusals_harmless(tier_http: HttpStage) -> None:
    """After bad requests a good one has the answer that it had before them."""
    good = tier_http.body(tier_http.stage.prompt(pages=2))
    tier_http.answer(good)  # so that both are warm
    before = tier_http.answer(good)

    for bad in (b"{", good | {"model": "no-such"}, good | {"prompt": ""}, good | {"max_tokens": -1}, good | {"prompt": 5}):
        tier_http.refused(bad, "a bad request")

    after = tier_http.answer(good)
    tier_http.judge.equal(after["choices"][0]["text"], before["choices"][0]["text"], "text afterwards", source="before")
    tier_http.judge.equal(after["usage"], before["usage"], "usage afterwards", source="before")


@claim("tier.http.key", source="OpenAI API reference, authentication")
@requires(TierCap.HTTP)
@requires(TierCap.API_KEY)
def test_key(tier_http: HttpStage) -> None:
    """Without the server's key, or with another, a request is refused with 401 in OpenAI's shape; the models list is, too."""
    key, body = tier_http.server.api_key, tier_http.body("amber")
    tier_http.answer(body)
    for what, headers in {"no key": {}, "a wrong key": {"Authorization": f"Bearer {key}x"}, "a bare key": {"Authorization": key}}.items():
        with httpx.Client(base_url=tier_http.client.base_url, headers=headers, timeout=ANSWER, trust_env=False) as client:
            check_refusal(tier_http.judge, client.post(COMPLETIONS, json=body), f"a completion with {what}", (401,))
            check_refusal(tier_http.judge, client.get("/v1/models"), f"the models list with {what}", (401,))


@claim("tier.http.models", source="OpenAI API reference, models")
@requires(TierCap.HTTP)
def test_models(tier_http: HttpStage) -> None:
    """The models list names every model that requests may name, each once."""
    listed = tier_http.client.get("/v1/models").json()
    names = [entry["id"] for entry in listed["data"]]

    tier_http.judge.equal((listed["object"], {entry["object"] for entry in listed["data"]}), ("list", {"model"}), "objects of the list")
    tier_http.judge.equal(len(names), len(set(names)), "different names in the list")
    for name in (tier_http.model, *tier_http.stage.engine.adapters):
        tier_http.judge.demand(name in names, got=f"models {names}", expected=f"{name} among them")
        tier_http.answer(tier_http.body("amber", model=name))


@claim("tier.http.usage", source="OpenAI API reference, completions: usage")
@requires(TierCap.HTTP)
def test_usage(tier_http: HttpStage) -> None:
    """Usage adds up: the total is the prompt and the new tokens, as many as were asked for, and no more is cached than was asked."""
    prompt, new = tier_http.stage.prompt(pages=3, extra=1), tier_http.stage.workload.new_tokens
    cold, warm = (tier_http.answer(tier_http.body(prompt, ignore_eos=tier_http.ignoring))["usage"] for _ in range(2))

    for usage in (cold, warm):
        tier_http.judge.equal(usage["completion_tokens"], new, "completion_tokens", source="max_tokens")
        tier_http.judge.equal(usage["total_tokens"], usage["prompt_tokens"] + new, "total_tokens", source="prompt and completion")
    tier_http.judge.equal(warm["prompt_tokens"], cold["prompt_tokens"], "prompt_tokens of the second time", source="the first")
    details = warm["prompt_tokens_details"]
    got = f"{details['cached_tokens']} cached of {warm['prompt_tokens']}"
    tier_http.judge.demand(0 < details["cached_tokens"] < warm["prompt_tokens"], got=got, expected="some, and not the last token")
    if "tiers" in details:
        tier_http.judge.equal(sum(details["tiers"].values()), details["cached_tokens"], "tokens over all tiers", source="cached_tokens")


@claim("tier.http.stream_same", source="OpenAI API reference, completions: stream")
@requires(TierCap.HTTP)
def test_stream_same(tier_http: HttpStage) -> None:
    """A stream gives the text, the ids where they are told, and the usage of the answer that comes whole."""
    ids = {"return_token_ids": True} if tier_http.stage.offers(TierCap.TOKEN_IDS) else {}
    body = tier_http.body(tier_http.stage.prompt(pages=2), max_tokens=4 * tier_http.stage.workload.new_tokens, **ids)
    tier_http.answer(body)  # so that both are warm
    whole = tier_http.answer(body)

    stream = tier_http.stream(body | {"stream_options": {"include_usage": True}})

    tier_http.judge.equal(stream.text, whole["choices"][0]["text"], "text of the stream", source="the whole answer")
    tier_http.judge.equal(_said(stream.events[-1]["usage"]), _said(whole["usage"]), "usage of the stream", source="the whole answer")
    if ids:
        tier_http.judge.equal(stream.token_ids, whole["choices"][0]["token_ids"], "ids of the stream", source="the whole answer")


@claim("tier.http.stream_events", source="OpenAI API reference, completions: stream, stream_options")
@requires(TierCap.HTTP)
def test_stream_events(tier_http: HttpStage) -> None:
    """A stream is server-sent events up to [DONE]; usage comes last, with no choices, and only where it was asked for."""
    body = tier_http.body(tier_http.stage.prompt(pages=1))
    for asked in (False, True):
        stream = tier_http.stream(body | ({"stream_options": {"include_usage": True}} if asked else {}))
        with_usage = [place for place, event in enumerate(stream.events) if event.get("usage")]
        reasons = [choice["finish_reason"] for event in stream.events for choice in event["choices"] if choice["finish_reason"]]

        tier_http.judge.demand(stream.kind.startswith("text/event-stream"), got=f"type {stream.kind!r}", expected="text/event-stream")
        tier_http.judge.equal(stream.done, True, "the stream ends with [DONE]")
        tier_http.judge.equal(with_usage, [len(stream.events) - 1] if asked else [], f"events with usage, asked for: {asked}")
        tier_http.judge.equal(len(reasons), 1, "events with a finish_reason")
        if asked:
            tier_http.judge.equal(stream.events[-1]["choices"], [], "choices beside the usage")


@claim("tier.http.prompts", source="OpenAI API reference, completions: prompt")
@requires(TierCap.HTTP)
def test_prompts(tier_http: HttpStage) -> None:
    """A list of prompts has a choice for each, in their order, and the usage of all together."""
    prompts = [" ".join(["amber"] * words) for words in (3, 40, 9)]
    alone = [tier_http.answer(tier_http.body(prompt)) for prompt in prompts]

    together = tier_http.answer(tier_http.body(prompts))

    choices = together["choices"]
    tier_http.judge.equal([choice["index"] for choice in choices], [0, 1, 2], "indices of the choices")
    for name in ("prompt_tokens", "completion_tokens"):
        total = sum(one["usage"][name] for one in alone)
        tier_http.judge.equal(together["usage"][name], total, f"{name} of all", source="each alone")
    if tier_http.stage.offers(TierCap.EXACT_RESTORE):
        texts = [one["choices"][0]["text"] for one in alone]
        tier_http.judge.equal([choice["text"] for choice in choices], texts, "texts", source="each alone")


@claim("tier.http.leaves_stream", source="issue: a client that leaves aborts its request and frees its pages")
@requires(TierCap.HTTP)
@requires(TierCap.ABORT)
def test_leaves_stream(tier_http: HttpStage) -> None:
    """A client that leaves in the middle of a stream frees all that its request held."""
    idle = tier_http.held()
    with tier_http.streaming(tier_http.endless()) as response:
        lines = response.iter_lines()  # kept: a stream is closed with its iterator
        next(lines)
        tier_http.judge.taken(int(tier_http.becomes(idle.__ne__, ANSWER) != idle), "a request that holds something while it is streamed")

    tier_http.judge.equal(tier_http.becomes(idle.__eq__), idle, "what is held after the client left", source="before it came")


@claim("tier.http.leaves_whole", source="issue: a client that leaves aborts its request and frees its pages")
@requires(TierCap.HTTP)
@requires(TierCap.ABORT)
def test_leaves_whole(tier_http: HttpStage) -> None:
    """A client that leaves before its whole answer came frees all that its request held."""
    idle = tier_http.held()

    seen = asyncio.run(_leave(tier_http, tier_http.endless(), idle))

    tier_http.judge.taken(int(seen != idle), "a request that holds something while its client waits")
    tier_http.judge.equal(tier_http.becomes(idle.__eq__), idle, "what is held after the client left", source="before it came")


@claim("tier.http.connections", source="issue: 200 connections at once")
@requires(TierCap.HTTP)
def test_connections(tier_http: HttpStage) -> None:
    """As many connections as the workload has at once are all served, each for its own prompt."""
    bodies = [tier_http.body(" ".join(["amber"] * (1 + 3 * number)), max_tokens=1) for number in range(10)]
    alone = [tier_http.answer(body) for body in bodies]
    count = tier_http.stage.workload.connections

    answers = asyncio.run(_at_once(tier_http, [bodies[number % len(bodies)] for number in range(count)]))

    for number, response in enumerate(answers):
        what, expected = f"connection {number} of {count}", alone[number % len(alone)]
        if isinstance(response, BaseException):
            tier_http.judge.demand(False, got=f"{what}: {type(response).__name__} {response}", expected="an answer")
            continue
        tier_http.judge.equal(response.status_code, 200, f"status of {what}")
        for name in ("prompt_tokens", "completion_tokens"):
            tier_http.judge.equal(response.json()["usage"][name], expected["usage"][name], f"{name} of {what}", source="alone")
        if tier_http.stage.offers(TierCap.EXACT_RESTORE):
            text = expected["choices"][0]["text"]
            tier_http.judge.equal(response.json()["choices"][0]["text"], text, f"text of {what}", source="alone")


def _said(usage: dict[str, Any]) -> dict[str, Any]:
    """What it says: a field that is null may as well be left out."""
    told = {name: _said(value) if isinstance(value, dict) else value for name, value in usage.items()}
    return {name: value for name, value in told.items() if value is not None}


async def _at_once(tier_http: HttpStage, bodies: list[dict[str, Any]]) -> list[httpx.Response | BaseException]:
    """Each request has a connection of its own: none is free when all begin. None idles before, which a server may close."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    client = tier_http.client
    async with httpx.AsyncClient(base_url=client.base_url, headers=client.headers, timeout=ANSWER, limits=limits, trust_env=False) as many:
        return await asyncio.gather(*(many.post(COMPLETIONS, json=body) for body in bodies), return_exceptions=True)


async def _leave(tier_http: HttpStage, body: dict[str, Any], idle: dict[str, int]) -> dict[str, int]:
    """What the server says it holds while the client waits; then the client is gone.

    It leaves once the server says that it holds something, however long that takes to show, or when there is nothing to leave any more.
    """
    client = tier_http.client
    async with httpx.AsyncClient(base_url=client.base_url, headers=client.headers, timeout=ANSWER, trust_env=False) as one:
        waiting = asyncio.ensure_future(one.post(COMPLETIONS, json=body))
        seen = await asyncio.to_thread(tier_http.becomes, lambda held: held != idle or waiting.done(), ANSWER)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    return seen
