"""Submits requests and lets the engine work until they are done, within a bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from harness.tier.protocol import Completion, PrefixCacheServer, Request

DEADLINE = 120.0
"""Seconds for the requests of one call, on an engine that works by itself."""

SLACK = 64
"""Steps beyond those that the requests take one after the other: for copies that are waited for."""


def generate(engine: PrefixCacheServer, requests: Sequence[Request], *, together: bool = False, stepped: bool = True) -> list[Completion]:
    """What the requests came to, in their order: one after the other, or all submitted at once.

    `stepped`: the engine works only inside `pump` (capability STEPPED). TimeoutError names the requests that are not done.
    """
    if not together:
        return [generate(engine, [request], together=True, stepped=stepped)[0] for request in requests]
    handles = [engine.submit(request) for request in requests]
    done = finish(engine.pump, engine.result, handles, steps=steps_of(requests) if stepped else None)
    return [done[handle] for handle in handles]


def steps_of(requests: Iterable[Request]) -> int:
    """No engine takes more steps than this for them, one after the other: at worst one a token, and a text has a character a token."""
    return SLACK + sum(len(request.prompt) + request.max_new_tokens for request in requests)


def finish(
    pump: Callable[[], None],
    result: Callable[[int], Completion | None],
    handles: Iterable[int],
    *,
    steps: int | None,
    seconds: float = DEADLINE,
) -> dict[int, Completion]:
    """Pump until every handle has its completion: within `steps` pumps, or, where that is None, within `seconds`. TimeoutError after it."""
    waiting, done, taken, ends = list(handles), {}, 0, time.monotonic() + seconds
    while waiting:
        if taken == steps:
            raise TimeoutError(f"after {steps} steps these requests are not done: {waiting}")
        if steps is None and time.monotonic() > ends:
            raise TimeoutError(f"after {seconds:g} s these requests are not done: {waiting}")
        pump()
        taken += 1
        for handle in list(waiting):
            completion = result(handle)
            if completion is not None:
                done[handle] = completion
                waiting.remove(handle)
    return done
