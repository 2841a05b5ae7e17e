"""From a request to what the scheduler runs: its token ids, its owner, and the refusal of what can never be served."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tier.protocol import Policy, Request
from harness.tier.reference.identity import Identity
from harness.tier.reference.keys import Keys, Owner
from harness.tier.reference.network import PLACEHOLDER, Network
from harness.tier.reference.tokenizer import TierTokenizer


@dataclass(frozen=True)
class Intake:
    """Reads requests for one network and one policy. `limit`: positions that a request may take, prompt and new tokens."""

    network: Network
    tokenizer: TierTokenizer
    policy: Policy
    limit: int
    keys: Keys

    def read(self, request: Request) -> tuple[tuple[int, ...], Owner]:
        """The ids, those of the media first, and the owner. ValueError as `PrefixCacheServer.submit` says."""
        self._check_names(request)
        ids = self._ids(request)
        new = request.max_new_tokens
        if not isinstance(new, int) or isinstance(new, bool) or new < 1:
            raise ValueError(f"max_new_tokens = {new!r}: write a number of at least 1")
        if len(ids) + new > self.limit:
            raise ValueError(f"{len(ids)} prompt tokens and {new} new ones are more than the {self.limit} that a request may have")
        pages = blocks(len(ids), new, self.policy.page) * len(self.policy.groups)
        if pages > self.policy.device_pages:
            raise ValueError(
                f"the request needs {pages} device pages, and the pool has {self.policy.device_pages}; make device_pages larger"
            )
        return ids, Owner(Identity(request.adapter, request.model_version or self.network.versions[0], request.media), request.salt)

    def _check_names(self, request: Request) -> None:
        if request.salt is not None and not isinstance(request.salt, str):
            raise ValueError(f"salt = {request.salt!r}: write a text, or None")
        if request.adapter is not None and request.adapter not in self.network.adapters:
            raise ValueError(f"adapter = {request.adapter!r}: this server has {', '.join(self.network.adapters)}")
        if request.model_version is not None and request.model_version not in self.network.versions:
            raise ValueError(f"model_version = {request.model_version!r}: this server has {', '.join(self.network.versions)}")
        if request.media is not None and (not isinstance(request.media, bytes) or not request.media):
            raise ValueError("media: give the bytes of an image, or None")

    def _ids(self, request: Request) -> tuple[int, ...]:
        prompt = request.prompt
        if isinstance(prompt, str):
            ids = tuple(self.tokenizer.encode(prompt))
        elif isinstance(prompt, tuple | list):
            ids = tuple(prompt)
            wrong = [
                token for token in ids if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self.network.vocabulary
            ]
            if wrong:
                raise ValueError(f"prompt holds {wrong[0]!r}: token ids are whole numbers from 0 to {self.network.vocabulary - 1}")
        else:
            raise ValueError(f"prompt is a {type(prompt).__name__}: give a text or a tuple of token ids")
        if not ids:
            raise ValueError("the prompt is empty")
        return (PLACEHOLDER,) * (self.network.media_tokens if request.media else 0) + ids


def blocks(prompt: int, new: int, page: int) -> int:
    """Pages of tokens that a request holds: of all its positions, but that of its last new token, which is never fed."""
    return -(-(prompt + new - 1) // page)
