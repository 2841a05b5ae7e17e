"""Wrong keys: what a page is kept under says less than it depends on, or says it so that two owners say the same."""

from __future__ import annotations

from ast import literal_eval
from dataclasses import replace
from typing import Any

from harness.tier.reference.keys import Key, Owner
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("salt-not-in-key", "keys:Keys.chain", "tier.keys.salt", "tier.keys.together")
def salt_not_in_key(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """Pages are kept under their tokens, whatever the salt."""
    return original(keys, ids, replace(owner, salt=None))


@wrong_input("salt-trimmed", "keys:Keys.chain", "tier.keys.salts_alike")
def salt_trimmed(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """Spaces around a salt do not count."""
    return original(keys, ids, replace(owner, salt=owner.salt and owner.salt.strip()))


@wrong_input("salt-before-the-prompt", "keys:Keys.chain", "tier.keys.salt_not_tokens")
def salt_before_the_prompt(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """A salt that spells tokens stands for them at the start of the prompt."""
    if owner.salt is None or not owner.salt.startswith("("):
        return original(keys, ids, owner)
    joined = (*literal_eval(owner.salt), *ids)
    return original(keys, joined, replace(owner, salt=None))[: len(ids) // keys.page]


@wrong_input("no-version-of-its-own", "intake:Intake.read", "tier.keys.default_version")
def no_version_of_its_own(original: Any, intake: Any, request: Any) -> tuple[tuple[int, ...], Owner]:
    """A prompt that names no version is kept apart from the default one's."""
    ids, owner = original(intake, request)
    return ids, owner if request.model_version or owner.salt else replace(owner, salt="no version")


@wrong_input("names-joined", "keys:Keys.chain", "tier.keys.names_apart")
def names_joined(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """Salt and adapter are one text in the key."""
    joined = "".join(filter(None, (owner.salt, owner.identity.adapter)))
    return original(keys, ids, Owner(replace(owner.identity, adapter=None), joined or None))


@wrong_input("page-by-itself", "keys:Keys.chain", "tier.keys.position")
def page_by_itself(original: Any, keys: Any, ids: Any, owner: Owner) -> list[Key]:
    """A page is kept under its own tokens, whatever comes before it."""
    return [original(keys, key.tokens, owner)[0] for key in original(keys, ids, owner)]


@wrong_input("hash-decides", "keys:Key.same_page", "tier.keys.collision")
def hash_decides(original: Any, key: Key, other: Key) -> bool:
    """Two keys are the same where their hashes are."""
    return hash(key) == hash(other)
