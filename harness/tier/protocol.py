"""The adapter of a tiered prefix-cache LLM server: signatures, value types, shapes, units, errors.

A server keeps the keys and values of prompts that it has seen, page by page. A prompt that begins as an earlier one did reuses those
pages: from the device, or from a host tier that took them before the device let go. Decoding is greedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import torch

from harness.core.lab import Lab


class Outcome(str, Enum):
    """How a request ended."""

    FINISHED = "finished"
    ABORTED = "aborted"
    FAILED = "failed"
    """By an error of its own, which the completion names."""


class Tier(str, Enum):
    """Where pages are kept."""

    DEVICE = "device"
    HOST = "host"


@dataclass(frozen=True)
class Request:
    """One prompt: a text, or token ids.

    `max_new_tokens` is at least 1; decoding goes on for just as many, whatever token comes. `salt` (capability SALT), `adapter`, one of
    the engine's `adapters` (ADAPTER), `model_version`, one of its `versions` (MODEL_VERSION), and `media`, the bytes of an image that
    stands before the prompt (MEDIA), are part of what a page is kept under. `want_logits`: the completion carries them (LOGITS).
    """

    prompt: str | tuple[int, ...]
    max_new_tokens: int = 4
    salt: str | None = None
    adapter: str | None = None
    media: bytes | None = None
    model_version: str | None = None
    want_logits: bool = False


@dataclass(frozen=True)
class TierHits:
    """Prompt tokens of one request that were not computed, by the tier that had them."""

    device: int
    host: int
    storage: int = 0

    @property
    def total(self) -> int:
        """Over all tiers."""
        return self.device + self.host + self.storage


@dataclass(frozen=True)
class Completion:
    """What a request came to.

    `token_ids` are the new tokens, `prompt_tokens` counts those of the prompt and of its media. `cached_tokens` are those prompt tokens
    that came from a cache when the request was first admitted; None where the engine does not say (capability CACHED_TOKENS), as `tiers`
    (TIER_HITS). `logits` f32[new tokens, vocabulary] are those that each token was chosen from. `error` says why, for FAILED.
    """

    outcome: Outcome
    text: str = ""
    token_ids: tuple[int, ...] | None = None
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    tiers: TierHits | None = None
    logits: torch.Tensor | None = None
    error: str | None = None


class Stage(str, Enum):
    """How far a request has come, as its lab tells."""

    QUEUED = "queued"
    LOADING = "loading"
    """It is admitted, and pages of its prefix are on their way from the host."""
    PREFILL = "prefill"
    DECODE = "decode"
    DONE = "done"


@dataclass(frozen=True)
class Group:
    """Layers whose pages are kept together. `window`: how many positions a token attends to, itself included; None: all before it."""

    name: str
    window: int | None


@dataclass(frozen=True)
class Policy:
    """What an engine keeps and what it lets go, as it declares it (capability POLICY); an oracle predicts every hit from it.

    Pages. `page` tokens of a prompt are kept under one key: the key of the page before, its tokens, and the request's salt, adapter,
    version and media. A page of tokens takes one device page for each of `groups`, of `device_pages`, and as many of `host_pages`
    (0: no host tier), of which one tier's are never lent to another's.

    A step. `pump` first takes in what the step before computed, request by request in the order of admission, then admits, then launches
    the next step. A request in prefill computes one chunk a step, up to the next multiple of `chunk`, a multiple of `page`, or to the end
    of its prompt, which gives its first new token; then one token a step. Taking in a whole chunk of the prompt keeps those of its pages
    that the device has not, and starts to write them to the host; a request ends when its last token is taken in. A write-back is over
    before the same step admits, and with a lag of n n steps later; a load when the step that admitted its request is taken in.

    Admission. Requests are admitted in the order in which they came while fewer than `max_running` run; one that does not fit keeps those
    behind it waiting. It hits the longest run of pages from the start, each on the device or, written whole, on the host, that ends at a
    multiple of `chunk` before its last prompt token. It holds device pages for all its positions from then on, prompt and new tokens,
    the last token left out: those that it hit on the device, which it shares, and new ones for the rest. Host pages that it hit are kept
    on the device again.

    Letting go. What is on the device and used by no request, nor by a copy under way, goes when another request needs the place: the
    page used longest ago first, and of those used at one moment the one farthest from the start of its prompt. A page is used, on the
    device and on the host, when a request that hits it is admitted, when it is kept, and when a request that holds it ends or is
    retracted; each of these is a moment of its own, one for all pages of that request. Pages on the host go by the same rule, when a page
    is written and no place is free. A page that finds no place on the host is not written; one that is there already stays as it is, and
    is used. A copy under way keeps both its ends from going, whoever asks. Two requests of one prompt that run at once have pages of their
    own: what the second computes is not kept, and uses nothing.

    Failures. A copy that fails is over at once, whatever its lag. What a failed write-back was to store is not kept on the host. A failed
    load undoes the admission: its pages are kept in neither tier any more, and the request is admitted anew, before all others, and
    reports what it hits then.
    """

    page: int
    chunk: int
    device_pages: int
    host_pages: int
    groups: tuple[Group, ...]
    max_running: int


class TierLab(Lab, Protocol):
    """What a friendly engine offers beyond the protocol (capability LAB).

    Operations: `store`, the copy of pages to the host, and `load`, that back. A lag counts calls of `pump`.
    """

    def stage(self, handle: int) -> Stage:
        """How far the request has come."""
        ...

    def read_page(self, tier: Tier, request: Request, index: int) -> Mapping[str, torch.Tensor] | None:
        """The page of the prompt's tokens from index * page on, as that tier keeps it, or None.

        By group: f[layers, 2, page, heads, dim], keys first.
        """
        ...

    def write_page(self, tier: Tier, request: Request, index: int, group: str, content: torch.Tensor) -> None:
        """Overwrite it. KeyError if it is not kept there."""
        ...

    def poison_free(self) -> None:
        """NaN in every device and host page that nobody holds, and behind the valid length of every page that somebody holds."""
        ...

    def collide(self) -> None:
        """From now on all keys have the same hash."""
        ...

    def anew(self, request: Request) -> Completion:
        """The request computed by the same network without this cache: the same chunks, over contiguous keys and values."""
        ...


class PrefixCacheServer(Protocol):
    """A server under test. Calls come from one thread."""

    page_size: int | None
    """Tokens; None where the engine does not say."""
    device_capacity: int | None
    """Tokens that the device pool holds, each counted once for each group; None where the engine does not say (capability CAPACITY)."""
    host_capacity: int | None
    """The same of the host tier; 0: there is none."""
    footprint: int
    """Pool tokens that a prompt token costs: groups that keep a page of their own."""
    max_prompt_tokens: int | None
    """A longer prompt is refused; None where the engine does not say."""
    vocabulary: int | None
    """Token ids are below it; None for an engine that takes texts only."""
    adapters: Sequence[str]
    """What `Request.adapter` may name, beside None."""
    versions: Sequence[str]
    """What `Request.model_version` may name, the default first."""
    policy: Policy | None
    """None without capability POLICY."""
    lab: TierLab | None

    def submit(self, request: Request) -> int:
        """Queue it; gives its handle. ValueError, and nothing is queued, for one that can never be served.

        That is: an empty prompt, one over the limit or over the whole pool, an id outside the vocabulary, `max_new_tokens` below 1, an
        adapter or version that there is not, a salt that is no text.
        """
        ...

    def pump(self) -> None:
        """Let the engine work: one step of one that is stepped; whatever has come to pass of one that runs by itself."""
        ...

    def result(self, handle: int) -> Completion | None:
        """What it came to, once; None as long as it is not done. KeyError for a handle that there is not, or whose result was taken."""
        ...

    def abort(self, handle: int) -> None:
        """End it: its completion is ABORTED, with the tokens that it had, unless it was done. KeyError as in `result` (ABORT)."""
        ...

    def retract(self, handle: int) -> None:
        """Take a running request's pages away; it waits before all others and goes on later as if nothing had been (capability RETRACT)."""
        ...

    def quiesce(self, timeout: float) -> None:
        """Return once every write-back has landed. TimeoutError after `timeout` seconds."""
        ...

    def drop_device(self) -> None:
        """Let go of all that is kept on the device and used by no request; the host tier keeps its own (capability DROP_DEVICE)."""
        ...

    def flush(self) -> None:
        """Forget everything that is kept, in all tiers (capability FLUSH). RuntimeError while a request is not done."""
        ...

    def usage(self) -> Mapping[str, int]:
        """What is held for requests and for copies: pages, pins, requests. Pages that are kept for later do not count."""
        ...

    def close(self) -> None:
        """Free everything. May be called twice."""
        ...


class HttpServer(PrefixCacheServer, Protocol):
    """One that is asked over HTTP (capability HTTP): OpenAI's completions at `url` + /v1/completions."""

    url: str
    """As http://127.0.0.1:8000."""
    model: str
    """What requests name."""
    api_key: str | None
    """Sent as `Authorization: Bearer KEY`, where it is not None; asked for where the engine has capability API_KEY."""

    def held(self) -> Mapping[str, int]:
        """What the server says that it holds for requests, now, whoever sent them. Empty for one that does not say."""
        ...
