"""Wrong refusals: what can never be served is made into something that can, and what is known twice is told twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.tier.protocol import Request, TierHits
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("nothing-is-a-token", "intake:Intake._ids", "tier.input.empty_prompt", "tier.input.empty_ids")
def nothing_is_a_token(original: Any, intake: Any, request: Request) -> tuple[int, ...]:
    """An empty prompt is taken for one token."""
    return original(intake, request) if request.prompt else (0,)


@wrong_input("cut-to-the-limit", "intake:Intake._ids", "tier.input.over_the_limit")
def cut_to_the_limit(original: Any, intake: Any, request: Request) -> tuple[int, ...]:
    """A prompt that is too long is served as far as it fits."""
    return original(intake, request)[: intake.limit - max(1, request.max_new_tokens)]


@wrong_input("new-tokens-clamped", "intake:Intake.read", "tier.input.new_tokens")
def new_tokens_clamped(original: Any, intake: Any, request: Request) -> Any:
    """A number of new tokens that cannot be is taken for the nearest that can."""
    return original(intake, replace(request, max_new_tokens=min(max(1, request.max_new_tokens), 8)))


@wrong_input("any-name-will-do", "intake:Intake._check_names", "tier.input.salt", "tier.input.adapter", "tier.input.version")
def any_name_will_do(original: Any, intake: Any, request: Request) -> None:
    """Nobody asks whether there is such an adapter or version, or whether a salt is a text."""


@wrong_input("ids-wrap-around", "intake:Intake._ids", "tier.input.vocabulary")
def ids_wrap_around(original: Any, intake: Any, request: Request) -> tuple[int, ...]:
    """A token id outside the vocabulary stands for another inside it."""
    if isinstance(request.prompt, tuple):
        request = replace(request, prompt=tuple(token % intake.network.vocabulary for token in request.prompt))
    return original(intake, request)


@wrong_input("results-stay", "engine:ReferenceServer.result", "tier.input.handle", "tier.leaks.results")
def results_stay(original: Any, server: Any, handle: int) -> Any:
    """A result can be taken again."""
    return server._done.get(handle) or original(server, handle)


@wrong_input("abort-of-nobody", "engine:ReferenceServer.abort", "tier.input.handle_to_abort")
def abort_of_nobody(original: Any, server: Any, handle: int) -> None:
    """Aborting a handle that there is not does nothing."""
    if handle in server._runs or handle in server._done:
        original(server, handle)


@wrong_input("a-token-is-always-cached", "admission:Admission.tell", "tier.input.one_token", "tier.input.page_edges")
def a_token_is_always_cached(original: Any, admission: Any, run: Any, found: Any) -> None:
    """A prompt of which nothing is kept counts one token as cached."""
    original(admission, run, found)
    if run.told == TierHits(0, 0):
        run.told = TierHits(1, 0)


@wrong_input("close-frees-the-pools", "engine:ReferenceServer.close", "tier.input.after_close")
def close_frees_the_pools(original: Any, server: Any) -> None:
    """Requests that are not done when the server is closed stay with it."""
    server._closed = True
    server._executor.close()


@wrong_input("image-takes-no-pages", "intake:blocks", "tier.input.media_counts")
def image_takes_no_pages(original: Any, prompt: int, new: int, page: int) -> int:
    """The positions of an image are not counted against the pool."""
    return min(original(prompt, new, page), original(max(prompt - 8, 1), new, page))
