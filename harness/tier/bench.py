"""What `assay bench tier` measures: first tokens cold, device-warm and host-warm, tokens a second, copies between tiers, hit ratios.

A request for one token is timed from `submit` to its result, on an idle engine: cold, again while the device keeps its pages, and again
after the device let go of them. The hit ratio is that of a second round over prompts that together take so many times the device pool.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from harness.core import guard
from harness.core.capabilities import Support, TierCap
from harness.core.clock import Clock
from harness.core.doctor.rates import synchronize
from harness.core.registry import Selection
from harness.core.spec import Profile
from harness.core.verdict import ClaimBroken, Unavailable
from harness.tier.bench_copies import Copies, measured, token_bytes
from harness.tier.driver import generate
from harness.tier.protocol import Completion, Outcome, PrefixCacheServer, Request
from harness.tier.workload import WORDS, Workload

TIMED = 5
"""Prompts that are timed; medians are told."""
NEW_TOKENS = 33
"""Of the request that decoding is timed on: the first token and 32 more."""
PARTS = 16
"""Prompts of the sweep that fill the device pool."""
DEADLINE = 600.0
"""Seconds for all that is timed of one build."""


class NothingTimed(ClaimBroken):
    """The engine did not do what was to be timed; `got` says what it did."""

    def __init__(self, got: str) -> None:
        super().__init__("NOTHING TIMED", got=got)


@dataclass(frozen=True)
class Speed:
    """One engine on prompts of `prompt_tokens`. Times are milliseconds to the first token, medians; rates are tokens or bytes a second.

    None: the engine has no host tier, cannot drop what the device keeps, or has no copies that can be timed alone. `seen`: the bytes that
    came from the host over the time that the first token took longer than device-warm.
    """

    engine: str
    prompt_tokens: int
    cold: float
    device_warm: float
    host_warm: float | None
    prefill_rate: float
    decode_rate: float
    host_tokens: int | None = None
    seen: float | None = None
    copies: Copies | None = None


@dataclass(frozen=True)
class Hits:
    """The second round of `prompts` prompts, which take `load` times the device pool. `ratio`: cached tokens of a prompt token.

    `from_host`: those of them that came from the host; None where the engine does not tell tiers apart.
    """

    engine: str
    host: bool
    load: float
    prompts: int
    ratio: float
    from_host: float | None = None


def profile_for(selection: Selection, device: torch.device) -> Profile:
    """The engine's profile for the device. Unavailable where it cannot be measured here."""
    spec = selection.spec
    profile = next((p for p in spec.profiles.values() if p.device == device.type), None)
    if profile is None:
        raise Unavailable(f"it has no profile for {device.type}")
    why = spec.why_unavailable(profile)
    if why:
        raise Unavailable(why)
    return profile


@contextmanager
def built(selection: Selection, device: torch.device, clock: Clock, **options: str) -> Iterator[PrefixCacheServer]:
    """The engine with these options too, closed in the end. Raises Unavailable, or what the engine raised as a finding."""
    gc.collect()
    profile = profile_for(selection, device)
    config = Selection(selection.spec, {**selection.options, **options}).config(profile, 0)
    adapter = selection.spec.load()

    def build() -> PrefixCacheServer | Unavailable:
        # The guard would take the exception for a mistake of the engine.
        try:
            return adapter.build(config, clock)
        except Unavailable as reason:
            return reason

    engine = guard.call("build", build, deadline=guard.BUILD_DEADLINE)
    if isinstance(engine, Unavailable):
        raise engine
    try:
        yield engine
    finally:
        guard.call("close", engine.close)


def offers(selection: Selection, capability: TierCap) -> bool:
    """Whether the engine declares it."""
    return selection.spec.capabilities[capability.value].support in (Support.FULL, Support.SINCE)


def speed(selection: Selection, engine: PrefixCacheServer, workload: Workload, device: torch.device, clock: Clock) -> Speed:
    """Time one build. NothingTimed for an engine whose warm requests are not warm."""
    return guard.call("generate", _speed, selection, engine, workload, device, clock, deadline=DEADLINE)


def _speed(selection: Selection, engine: PrefixCacheServer, workload: Workload, device: torch.device, clock: Clock) -> Speed:
    stepped = offers(selection, TierCap.STEPPED)

    def timed(prompt: str, new: int = 1) -> tuple[float, Completion]:
        synchronize(device)
        began = clock.now()
        (completion,) = generate(engine, [Request(prompt, max_new_tokens=new)], stepped=stepped)
        took = 1e3 * (clock.now() - began)
        if completion.outcome is not Outcome.FINISHED:
            raise NothingTimed(f"a request was {completion.outcome.value}: {completion.error}")
        return took, completion

    # What is compiled or captured at first use is not timed.
    for _ in range(2):
        timed(workload.prompt(workload.prompts_most), NEW_TOKENS)
    cold, warm, back, tokens, hit = [], [], [], [], []
    drops = bool(engine.host_capacity) and offers(selection, TierCap.DROP_DEVICE)
    for number in range(TIMED):
        took, completion = timed(workload.prompt(number))
        cold.append(took)
        tokens.append(completion.prompt_tokens)
        engine.quiesce(DEADLINE)
        took, completion = timed(workload.prompt(number))
        warm.append(_warm(took, completion, "device-warm"))
        if drops:
            engine.quiesce(DEADLINE)
            engine.drop_device()
            took, completion = timed(workload.prompt(number))
            back.append(_warm(took, completion, "host-warm"))
            hit.append(completion.cached_tokens or 0)
    # Once more, so that both find the same on the device.
    timed(workload.prompt(0))
    first = timed(workload.prompt(0))[0]
    decoding = timed(workload.prompt(0), NEW_TOKENS)[0] - first
    length, cold_ms, warm_ms = int(statistics.median(tokens)), statistics.median(cold), statistics.median(warm)
    back_ms = statistics.median(back) if back else None
    host_tokens = int(statistics.median(hit)) if hit else None
    bytes_ = token_bytes(engine)
    engine.quiesce(DEADLINE)
    return Speed(
        engine=selection.label,
        prompt_tokens=length,
        cold=cold_ms,
        device_warm=warm_ms,
        host_warm=back_ms,
        prefill_rate=1e3 * length / cold_ms,
        decode_rate=1e3 * (NEW_TOKENS - 1) / max(decoding, 1e-6),
        host_tokens=host_tokens,
        seen=None if not (bytes_ and host_tokens and back_ms and back_ms > warm_ms) else 1e3 * bytes_ * host_tokens / (back_ms - warm_ms),
        copies=measured(engine, device, clock) if offers(selection, TierCap.FLUSH) else None,
    )


def _warm(took: float, completion: Completion, what: str) -> float:
    """An engine that computes all anew, and says so, is not timed as warm."""
    if completion.cached_tokens == 0:
        raise NothingTimed(f"a {what} request reused none of its {completion.prompt_tokens} tokens")
    return took


def hits(selection: Selection, engine: PrefixCacheServer, host: bool, loads: Sequence[float], tell: Callable[[], None]) -> list[Hits]:
    """The sweep over one build. Unavailable for an engine that does not count, or does not say what it holds."""
    if not engine.device_capacity or not offers(selection, TierCap.CACHED_TOKENS):
        raise Unavailable("it does not say how many tokens its device pool holds, or came from a cache")
    found = []
    for place, load in enumerate(loads):
        found.append(guard.call("generate", _hits, selection, engine, host, load, place, deadline=DEADLINE))
        tell()
    return found


def _hits(selection: Selection, engine: PrefixCacheServer, host: bool, load: float, place: int) -> Hits:
    stepped = offers(selection, TierCap.STEPPED)
    if offers(selection, TierCap.FLUSH):
        engine.quiesce(DEADLINE)
        engine.flush()
    pool = (engine.device_capacity or 0) // engine.footprint
    length = min(pool // PARTS, engine.max_prompt_tokens or pool, 2048)
    count = math.ceil(load * pool / length)
    asked = [Request(prompt(f"{place} {number}", length, engine.vocabulary), max_new_tokens=1) for number in range(count)]
    generate(engine, asked, stepped=stepped)
    second = generate(engine, asked, stepped=stepped)
    tokens = sum(completion.prompt_tokens for completion in second)
    cached = sum(completion.cached_tokens or 0 for completion in second)
    tiers = [completion.tiers for completion in second if completion.tiers is not None]
    from_host = sum(hit.host for hit in tiers) / tokens if len(tiers) == len(second) else None
    return Hits(selection.label, host, count * length / pool, count, cached / tokens, from_host)


def prompt(name: str, length: int, vocabulary: int | None) -> Any:
    """`length` drawn token ids, or as many words for an engine that takes texts only; other names give prompts that differ at once."""
    draw = Random(name)
    if vocabulary is None:
        return f"{name} " + " ".join(f"{draw.choice(WORDS)}" for _ in range(length // 2))
    return tuple(draw.randrange(vocabulary) for _ in range(length))
