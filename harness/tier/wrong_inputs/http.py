"""Wrong answers of `assay serve`: planted in the server's own process, seen through HTTP alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi.responses import JSONResponse, StreamingResponse

from harness.core.faults import Role, fault
from harness.tier.server.body import CompletionBody
from harness.tier.server.errors import Refusal

CROWD = 64
"""Requests that a narrow server serves."""


def http_wrong_input(name: str, seam: str, *claims: str) -> Any:
    """Register the decorated function as the wrong input `tier/http-<name>`; `seam` is relative to the server."""
    claims = tuple(f"tier.http.{claim}" for claim in claims)
    seam = f"harness.tier.server.{seam}"
    return fault(f"tier/http-{name}", seam=seam, claims=claims, role=Role.WRONG_INPUT, engine="tier/reference-http", raises=(Refusal,))


REFUSALS = ("bad_json", "model_unknown", "model_missing", "prompt_empty", "prompt_long", "types", "max_tokens", "ids_outside", "key")


@http_wrong_input("plain-errors", "errors:Refusal.body", *REFUSALS, "stream_refused")
def plain_errors(original: Any, refusal: Refusal) -> dict[str, Any]:
    """An error is a text, and no object with a message, a type, a param and a code."""
    return {"error": refusal.message}


@http_wrong_input("errors-are-500", "errors:Refusal.response", *REFUSALS, "stream_refused", "refused_whole")
def errors_are_500(original: Any, refusal: Refusal) -> JSONResponse:
    """Whatever is wrong with a request is told as an error of the server's."""
    return JSONResponse(refusal.body(), 500)


@http_wrong_input("any-model", "app:Server.start", "model_unknown")
async def any_model(original: Any, server: Any, body: CompletionBody) -> Any:
    """A model that is not served is answered by the one that is."""
    return await original(server, body.model_copy(update={"model": server.model}))


@http_wrong_input("any-key", "app:Server.check", "key")
def any_key(original: Any, server: Any, authorization: str | None) -> None:
    """Any key opens the server."""
    if not authorization:
        original(server, authorization)


@http_wrong_input("shaken", "app:Server.start", "refusals_harmless")
async def shaken(original: Any, server: Any, body: CompletionBody) -> Any:
    """After a request that it refused the server gives everybody one token."""
    if vars(server).get("shaken"):
        body = body.model_copy(update={"max_tokens": 1})
    try:
        return await original(server, body)
    except Refusal:
        server.shaken = True
        raise


@http_wrong_input("model-unlisted", "app:Server.models", "models")
def model_unlisted(original: Any, server: Any) -> dict[str, Any]:
    """The models list has the adapters under a name of its own making."""
    listed = original(server)
    named = [entry | {"id": f"{server.model}:{entry['id']}"} if entry["parent"] else entry for entry in listed["data"]]
    return listed | {"data": named}


@http_wrong_input("cached-left-out", "answers:usage", "usage")
def cached_left_out(original: Any, ends: Any) -> dict[str, Any]:
    """The total leaves out what came from the cache."""
    usage = original(ends)
    return usage | {"total_tokens": usage["total_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]}


@http_wrong_input("character-lost", "answers:Answer._choice", "stream_same")
def character_lost(original: Any, answer: Any, number: int, text: str, ids: Any, reason: str | None) -> dict[str, Any]:
    """The first character of each event is lost."""
    return original(answer, number, text if reason else text[1:], ids, reason)


@http_wrong_input("no-done", "answers:Answer.events", "stream_events")
async def no_done(original: Any, answer: Any) -> AsyncIterator[str]:
    """A stream just ends."""
    async for event in original(answer):
        if "[DONE]" not in event:
            yield event


@http_wrong_input("first-prompt-only", "body:_prompts", "prompts")
def first_prompt_only(original: Any, body: CompletionBody) -> Any:
    """Of several prompts the first is answered."""
    return original(body)[:1]


@http_wrong_input("left-running", "answers:Answer.leave", "leaves_stream", "leaves_whole")
def left_running(original: Any, answer: Any) -> None:
    """A request goes on when its client has left."""


@http_wrong_input("half-refused", "worker:Worker.leave", "refused_whole")
def half_refused(original: Any, worker: Any, job: Any) -> None:
    """The good prompts of a refused request go on."""


@http_wrong_input("narrow", "app:Server.start", "connections")
async def narrow(original: Any, server: Any, body: CompletionBody) -> Any:
    """A server that has had many requests in a row turns further ones away."""
    server.served = getattr(server, "served", 0) + 1
    if server.served > CROWD:
        raise Refusal("Too many requests.", status=429, kind="rate_limit_error")
    return await original(server, body)


@http_wrong_input("streams-always-200", "app:Server.complete", "stream_refused")
async def streams_always_200(original: Any, server: Any, body: CompletionBody, http: Any) -> Any:
    """A stream is begun before the request is looked at, and then told what is wrong with it."""
    try:
        return await original(server, body, http)
    except Refusal as refusal:
        if not body.stream:
            raise
        return StreamingResponse(partial(iter, [f"data: {refusal.body()}\n\n"])(), media_type="text/event-stream")
