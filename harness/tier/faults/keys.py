"""Faults of what a page is kept under."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.tier.faults.register import catalogued
from harness.tier.protocol import Tier
from harness.tier.reference.keys import Key, Owner


def for_others(original: Any, keys: Any, ids: Any, owner: Owner, **missing: Any) -> list[Key]:
    """The chain of a prompt with parts of its identity left out."""
    return original(keys, ids, replace(owner, identity=replace(owner.identity, **missing)))


@catalogued(
    "adapter-not-in-key",
    "keys:Keys.chain",
    claims=["tier.keys.adapter"],
    source="vllm#30931, #44250, #3264",
)
def adapter_not_in_key(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """Pages are kept under their tokens, whichever adapter computed them."""
    return for_others(original, keys, ids, owner, adapter=None)


@catalogued(
    "reload-not-in-key",
    "keys:Keys.chain",
    claims=["tier.keys.version"],
    source="vllm#42495; tokenspeed#1125 (bot: weight version)",
)
def reload_not_in_key(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """Pages of older weights are found by the newer ones."""
    return for_others(original, keys, ids, owner, version=None)


@catalogued(
    "image-not-in-key",
    "keys:Keys.chain",
    claims=["tier.keys.media"],
    source="LMCache#690, ROCm/ATOM#1358",
)
def image_not_in_key(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """An image is known by its placeholder tokens."""
    return for_others(original, keys, ids, owner, media=None)


class Trusting(Key):
    """A key that is what its hash says."""

    __slots__ = ()
    __hash__ = Key.__hash__

    def __eq__(self, other: object) -> bool:
        return hash(self) == hash(other)


@catalogued(
    "key-entropy-low",
    "keys:Keys.chain",
    claims=["tier.keys.distinct"],
    source="LMCache#4783 (16 bits), vllm#12621, #15297",
)
def key_entropy_low(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """Eight bits of the hash are kept, and nothing else is compared."""
    made: list[Key] = []
    for key in original(keys, ids, owner):
        made.append(Trusting(made[-1] if made else None, key.tokens, key.owner, hash(key) & 0xFF))
    return made


@catalogued(
    "salt-ignored-by-tier",
    "kept:TierIndex.name",
    claims=["tier.keys.salt_host"],
    source="vllm#53495; sglang#24568 (events); LMCache#3770 (lock key)",
)
def salt_ignored_by_tier(original: Any, index: Any, key: Key) -> Key:
    """The host keeps pages without their salt."""
    named = original(index, key)
    if index.tier is Tier.DEVICE:
        return named
    before = None if key.before is None else index.name(key.before)
    return Key(before, key.tokens, replace(key.owner, salt=None), hash((before, key.tokens)))


@catalogued(
    "trim-leaves-tail",
    "admission:Admission.match",
    claims=["tier.keys.diverging"],
    source="waybarrios/vllm-mlx#385 (22/204 responses)",
)
def trim_leaves_tail(original: Any, admission: Any, keys: list[Key], prompt: int) -> Any:
    """A prompt that goes on otherwise inside a page is given the pages of the one before, its tail included."""
    found = original(admission, keys, prompt)
    begin, chunk = len(found), admission.policy.chunk // admission.policy.page
    alike: dict[int, Any] = {}
    for kept in admission.device:
        at = kept.key.depth
        inside = begin <= at < min(begin + chunk, len(keys)) and kept.arrived and kept.key.owner == keys[at].owner
        # The first of the chunk's pages begins as the prompt does; what follows it comes along.
        if inside and (at > begin or kept.key.tokens[:1] == keys[at].tokens[:1]):
            alike[at] = kept
    if len(alike) == chunk and admission.reach(begin + chunk, prompt) == begin + chunk:
        found.device.update(alike)
    return found
