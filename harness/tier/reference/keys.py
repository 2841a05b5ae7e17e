"""What a page is kept under: everything that its keys and values depend on.

A hash finds a page quickly and decides nothing: two keys are equal where all that they stand for is, so that a collision, constructed or
not, serves nobody another's page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from harness.tier.reference.identity import Identity


@dataclass(frozen=True)
class Owner:
    """Whom the pages of a prompt are for: what the network computes with beside the tokens, and the salt that keeps tenants apart."""

    identity: Identity
    salt: str | None = None


class Key:
    """One page of a prompt: its tokens, its owner, and the page before it (None: it is the first)."""

    __slots__ = ("_hash", "before", "depth", "owner", "tokens")

    def __init__(self, before: Key | None, tokens: tuple[int, ...], owner: Owner, hashed: int) -> None:
        self.before, self.tokens, self.owner = before, tokens, owner
        self.depth: int = 0 if before is None else before.depth + 1
        self._hash = hashed

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return False
        mine: Key | None = self
        theirs: Key | None = other
        while mine is not theirs:
            if mine is None or theirs is None or not mine.same_page(theirs):
                return False
            mine, theirs = mine.before, theirs.before
        # Equal keys share what is before them: the comparison of the next page of a prompt ends here.
        self.before = other.before
        return True

    def same_page(self, other: Key) -> bool:
        """Whether both stand for the same tokens of the same owner, whatever is before them."""
        return self._hash == other._hash and self.tokens == other.tokens and self.owner == other.owner


def digest(before: Key | None, tokens: tuple[int, ...], owner: Owner) -> int:
    """64 bits of SHA-256 over the page, chained to the one before."""
    hashed = sha256(b"" if before is None else hash(before).to_bytes(8, "big", signed=True))
    hashed.update(repr((tokens, owner)).encode())
    return int.from_bytes(hashed.digest()[:8], "big", signed=True) >> 3  # below Python's own modulus of hashes


class Keys:
    """Makes the keys of one server. `colliding`: they all have one hash."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.colliding = False

    def chain(self, ids: Sequence[int], owner: Owner) -> list[Key]:
        """The keys of the whole pages of a prompt, from its start."""
        keys: list[Key] = []
        for start in range(0, len(ids) - self.page + 1, self.page):
            before, tokens = keys[-1] if keys else None, tuple(ids[start : start + self.page])
            keys.append(Key(before, tokens, owner, 0 if self.colliding else digest(before, tokens, owner)))
        return keys
