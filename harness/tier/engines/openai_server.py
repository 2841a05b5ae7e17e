"""Any OpenAI-compatible server as a `PrefixCacheServer`: what its completions, its models list and its metrics tell."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx

from harness.tier.engines.exchange import Exchange, Line, message_of
from harness.tier.engines.known_servers import OURS, KnownServer, Metric, Samples, known_server
from harness.tier.engines.served import Served
from harness.tier.protocol import Completion, Group, Outcome, Policy, Request, TierHits

TAKEN = 2.0
"""Seconds for a server to take or refuse a request. One that says nothing by then has taken it; refused later, it FAILs."""
PAUSE = 0.02
"""Seconds that `pump` waits for news, and between two looks at what an idle server holds."""
SETTLE = 10.0
"""Seconds in which an idle server lets go of what it held for requests that are over."""


@dataclass(frozen=True)
class Facts:
    """What is known of a server from elsewhere than its API, by its adapter's options; None where it has to say so itself."""

    model: str | None = None
    capacity: int | None = None
    page: int | None = None
    footprint: int = 1
    vocabulary: int | None = None


class OpenAIServer:
    """The server at `url`. `served`: its process, where it is the adapter's own, and ends with this."""

    lab = None

    def __init__(self, url: str, api_key: str | None, facts: Facts, served: Served | None = None) -> None:
        self.url, self.api_key, self._served = url, api_key, served
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._line = Line(url, self.headers)
        self._open: dict[int, Exchange] = {}
        self._aborted: set[int] = set()
        self._before: dict[int, Samples] = {}
        self._numbers = count(1)
        self._closed = False
        self._nonce = ""
        try:
            self._learn(facts)
            self.flush()
        except BaseException:
            self._line.close()
            raise

    def _learn(self, facts: Facts) -> None:
        models = self._json("GET", "/v1/models")["data"]
        self.known: KnownServer = known_server(str(model.get("owned_by")) for model in models)
        names = [str(model["id"]) for model in models]
        self.model = facts.model or names[0]
        if self.model not in names:
            raise ValueError(f"option model = {self.model!r}: {self.url} serves {', '.join(names)}")
        entry = models[names.index(self.model)]
        self.max_prompt_tokens: int | None = entry["max_model_len"] - 1 if isinstance(entry.get("max_model_len"), int) else None
        # An adapter's parent is what it changes; servers of one model alone say nothing of parents.
        self.adapters: Sequence[str] = [str(model["id"]) for model in models if model.get("parent") == self.model]
        self.versions: Sequence[str] = ()
        self.policy: Policy | None = None
        self.vocabulary: int | None = facts.vocabulary
        self.host_capacity: int | None = None
        self.footprint = facts.footprint
        pages, page = self._pool()
        self.page_size: int | None = facts.page or page
        tokens = self._total(self.known.tokens)
        told = pages * page if pages and page else int(tokens) if tokens else None
        self._pages = pages
        self.device_capacity: int | None = facts.capacity or told
        if self.known is OURS:
            self._learn_ours()

    def _learn_ours(self) -> None:
        told = self._json("GET", "/server_info")
        for name in ("page_size", "device_capacity", "host_capacity", "footprint", "max_prompt_tokens", "vocabulary", "versions"):
            setattr(self, name, told[name])
        if told["policy"] is not None:
            self.policy = Policy(**told["policy"] | {"groups": tuple(Group(**group) for group in told["policy"]["groups"])})

    def _pool(self) -> tuple[int | None, int | None]:
        """Pages that hold tokens, and tokens of one."""
        labels = self._samples().labels(self.known.info) if self.known.info else {}
        pages, page = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
        if not pages.isdecimal() or not page.isdecimal():
            size = self._total(self.known.page)
            return None, int(size) if size else None
        return int(pages) - self.known.spare_pages, int(page)

    def submit(self, request: Request) -> int:
        """As `PrefixCacheServer.submit`. RuntimeError where the server cannot be reached, or fails at once."""
        body = self._body(request)
        before = None if self._running() or not self.known.hits else self._samples()
        exchange = self._line.start(body)
        self._line.accepted(exchange, TAKEN)
        if exchange.refusal:
            raise ValueError(exchange.refusal)
        handle = next(self._numbers)
        self._open[handle] = exchange
        self._before = {} if before is None else {handle: before}
        return handle

    def _body(self, request: Request) -> dict[str, Any]:
        salt, prompt = self._salted(request)
        body: dict[str, Any] = {
            "model": self.model if request.adapter is None else request.adapter,
            "prompt": prompt,
            "max_tokens": request.max_new_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.known.fields,
        }
        ours = self.known is OURS
        media = base64.b64encode(request.media).decode() if isinstance(request.media, bytes) else request.media
        for name, value, offered in (
            ("cache_salt", salt, self.known.salt),
            ("model_version", request.model_version, ours),
            ("media", media, ours),
        ):
            if value is not None and not offered:
                raise ValueError(f"{name}: a server of the kind {self.known.name!r} takes none")
            if value is not None:
                body[name] = value
        if request.want_logits:
            raise ValueError("want_logits: logits do not come over HTTP")
        return body

    def _salted(self, request: Request) -> tuple[Any, str | list[int]]:
        """Salt and prompt, with the nonce in one of them: a server that cannot be flushed has what earlier runs asked still."""
        prompt = request.prompt if isinstance(request.prompt, str) else list(request.prompt)
        if isinstance(request.salt, bytes):
            raise ValueError(f"salt = {request.salt!r}: JSON has no bytes; write a text")
        if not self._nonce:
            return request.salt, prompt
        if self.known.salt and isinstance(request.salt, str | None):
            return f"{self._nonce} {request.salt or ''}".strip(), prompt
        if isinstance(prompt, str) and prompt:
            return request.salt, f"{self._nonce} {prompt}"
        return request.salt, prompt

    def pump(self) -> None:
        """Take in what has arrived; waits a little where nothing has. RuntimeError if a server of the adapter's own has ended."""
        if self._served is not None:
            self._served.check()
        self._line.news(PAUSE)

    def wait(self, handle: int, timeout: float) -> None:
        """Return once it is done; TimeoutError after `timeout` seconds."""
        until = time.monotonic() + timeout
        while not self._open[handle].ended:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.url} has not answered within {timeout:g} s")
            self.pump()

    def result(self, handle: int) -> Completion | None:
        """As `PrefixCacheServer.result`."""
        exchange = self._open[handle]
        if not exchange.ended:
            return None
        del self._open[handle]
        if handle in self._aborted:
            self._aborted.remove(handle)
            return Completion(Outcome.ABORTED, exchange.text)
        error = exchange.error or exchange.refusal
        if error is not None:
            return Completion(Outcome.FAILED, exchange.text, error=error)
        if exchange.usage is None:
            return Completion(Outcome.FAILED, exchange.text, error="the stream has no usage, though stream_options asked for it")
        return self._completion(handle, exchange, exchange.usage)

    def _completion(self, handle: int, exchange: Exchange, usage: Mapping[str, Any]) -> Completion:
        details = usage.get("prompt_tokens_details") or {}
        cached, tiers = details.get("cached_tokens"), details.get("tiers")
        ids = exchange.token_ids
        return Completion(
            Outcome.FINISHED,
            exchange.text,
            None if ids is None else tuple(ids),
            usage["prompt_tokens"],
            cached,
            TierHits(**tiers) if tiers else self._counted(handle, cached),
        )

    def _counted(self, handle: int, cached: int | None) -> TierHits | None:
        """By /metrics, which count all requests together: for one that was alone on this line, and whose counters add up."""
        before = self._before.pop(handle, None)
        if before is None or cached is None:
            return None
        after = self._samples()
        grown = {tier: int((after.total(metric) or 0) - (before.total(metric) or 0)) for tier, metric in self.known.hits.items()}
        hits = TierHits(grown.get("device", 0), grown.get("host", 0), grown.get("storage", 0))
        return hits if hits.total == cached else None

    def abort(self, handle: int) -> None:
        """As `PrefixCacheServer.abort`: the connection is closed, which is how a client of such a server ends a request."""
        exchange = self._open[handle]
        if not exchange.ended:
            self._aborted.add(handle)
            self._line.drop(exchange)

    def retract(self, handle: int) -> None:
        raise NotImplementedError("no server retracts a request over HTTP (capability retract)")

    def quiesce(self, timeout: float) -> None:
        """Ours says when write-backs have landed; another server is given until it holds nothing for requests."""
        if self.known is OURS:
            answer = self._line.ask("POST", "/quiesce", json={"timeout": timeout})
            if not answer.is_success:
                raise TimeoutError(message_of(answer.json()))
            return
        until = time.monotonic() + timeout
        while any(self.held().values()):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.url} still holds {self.held()} after {timeout:g} s")
            self._line.news(PAUSE)

    def drop_device(self) -> None:
        raise NotImplementedError("no server drops its device tier over HTTP (capability drop_device)")

    def flush(self) -> None:
        """As `PrefixCacheServer.flush`; where the server has no such call, prompts carry another nonce from now on."""
        if self._running():
            raise RuntimeError(f"{self._running()} requests are not done; pump until they are, or abort them")
        if not self._flushed():
            self._nonce = secrets.token_hex(8)

    def _flushed(self) -> bool:
        if self.known.flush is None:
            return False
        until = time.monotonic() + SETTLE
        while True:
            answer = self._line.ask("POST", self.known.flush)
            if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED):
                return False
            told = answer.json() if "json" in answer.headers.get("content-type", "") else {}
            if answer.is_success and told.get("success", True):
                return True
            if time.monotonic() > until:
                raise RuntimeError(f"{self.known.flush} says {answer.status_code} {answer.text.strip()} for {SETTLE:g} s")
            # A request that has just ended may hold its pages for a step more.
            self._line.news(PAUSE)

    def usage(self) -> Mapping[str, int]:
        """Requests that are not taken; and, once there are none, what the server holds after it has had time to let go.

        While it works for some, that changes from one moment to the next.
        """
        if self._closed:
            raise RuntimeError("the engine is closed")
        if self._open:
            return {"requests": len(self._open)}
        if self.known is OURS:
            self.quiesce(SETTLE)
        until = time.monotonic() + SETTLE
        while any((held := self.held()).values()) and time.monotonic() < until:
            self._line.news(PAUSE)
        return {"requests": 0, **{f"server {name}": number for name, number in held.items()}}

    def held(self) -> dict[str, int]:
        """As `HttpServer.held`."""
        samples = self._samples()
        if self.known is OURS:
            return {name: int(value) for name, value in samples.each("assay_held", "what").items()}
        held = {name: int(samples.total(metric) or 0) for name, metric in self.known.held.items()}
        share = samples.total(self.known.held_share) if self.known.held_share else None
        return held if share is None else held | {"device_pages": round(share * (self._pages or 1000))}

    def close(self) -> None:
        """End the connections, and the server where it is the adapter's own. May be called twice."""
        if not self._closed:
            self._closed = True
            try:
                self._line.close()
            finally:
                if self._served is not None:
                    self._served.close()

    def _running(self) -> int:
        return sum(not exchange.ended for exchange in self._open.values())

    def _total(self, metric: Metric | None) -> float | None:
        return self._samples().total(metric) if metric else None

    def _samples(self) -> Samples:
        """None for a server without metrics."""
        answer = self._line.ask("GET", "/metrics")
        return Samples.parse(answer.text) if answer.is_success else Samples()

    def _json(self, method: str, path: str) -> Any:
        answer = self._line.ask(method, path)
        if not answer.is_success:
            raise RuntimeError(f"{method} {self.url}{path} answers {answer.status_code}: {answer.text.strip()[:200]}")
        return answer.json()
