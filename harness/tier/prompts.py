"""Prompts that are drawn: the same seed draws the same, on every machine."""

from __future__ import annotations

from functools import lru_cache
from random import Random

from harness.tier.workload import WORDS


@lru_cache(maxsize=512)
def draws(seed: str, tokens: int, vocabulary: int) -> tuple[int, ...]:
    """Token ids; a longer run of one seed begins with the shorter."""
    draw = Random(seed)
    return tuple(draw.randrange(vocabulary) for _ in range(tokens))


@lru_cache(maxsize=512)
def words(seed: str, count: int) -> tuple[str, ...]:
    """Words of a text; a longer run of one seed begins with the shorter."""
    draw = Random(seed)
    return tuple(f"{draw.choice(WORDS)}{draw.randrange(1000)}" for _ in range(count))
