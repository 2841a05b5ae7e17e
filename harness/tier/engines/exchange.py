"""Completions over HTTP, many at once: an event loop on a thread of its own, and what has come of each request so far."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any

import httpx

SILENCE = 120.0
"""Seconds that a server may say nothing in the middle of an answer."""
CONNECT = 10.0
"""Seconds for a connection."""


JSON = {"Content-Type": "application/json"}


class Exchange:
    """One streamed completion. Its fields are written by the loop's thread, under the line's lock, and read by the engine's.

    `accepted`: the server has answered 200. `ended`: nothing more will come. `refusal`: a 4xx's message; `error`: any other failure's.
    """

    def __init__(self) -> None:
        self.accepted = self.ended = False
        self.refusal: str | None = None
        self.error: str | None = None
        self.text = ""
        self.token_ids: list[int] | None = None
        self.usage: Mapping[str, Any] | None = None
        self.task: Future[None] | None = None

    def take(self, chunk: Mapping[str, Any]) -> None:
        """One event of the stream."""
        if "error" in chunk:
            self.error = message_of(chunk)
        if chunk.get("usage"):
            self.usage = chunk["usage"]
        for choice in chunk.get("choices", ()):
            self.text += choice.get("text") or ""
            if choice.get("token_ids") is not None:
                self.token_ids = [*(self.token_ids or ()), *choice["token_ids"]]


class Line:
    """The loop and its client. Calls come from one thread; `close` ends both."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._news = threading.Condition()
        self._arrived = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="assay-http", daemon=True)
        self._thread.start()
        limits, timeout = httpx.Limits(max_connections=None, max_keepalive_connections=0), httpx.Timeout(SILENCE, connect=CONNECT)
        self._client = httpx.AsyncClient(base_url=url, headers=dict(headers), limits=limits, timeout=timeout, trust_env=False)

    def start(self, body: Mapping[str, Any]) -> Exchange:
        """Send it; what becomes of it is in the exchange. TypeError for what JSON cannot carry, RuntimeError once this is closed."""
        self._check_open()
        exchange, content = Exchange(), json.dumps(body).encode()
        exchange.task = asyncio.run_coroutine_threadsafe(self._run(exchange, content), self._loop)
        return exchange

    def accepted(self, exchange: Exchange, timeout: float) -> None:
        """Return once the server has taken or refused it, or after `timeout` seconds."""
        with self._news:
            self._news.wait_for(lambda: exchange.accepted or exchange.ended, timeout)

    def news(self, timeout: float) -> None:
        """Return once something has arrived, of any exchange, since the last call; or after `timeout` seconds."""
        with self._news:
            self._news.wait_for(lambda: self._arrived, timeout)
            self._arrived = 0

    def drop(self, exchange: Exchange) -> None:
        """Close its connection, if it has one still; returns once that is done."""
        if exchange.task is not None:
            exchange.task.cancel()
        with self._news:
            self._news.wait_for(lambda: exchange.ended, CONNECT)

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """A short request of another kind; httpx.HTTPError if it fails, RuntimeError once this is closed."""
        self._check_open()
        return self._wait(self._client.request(method, path, **given))

    def close(self) -> None:
        """May be called twice."""
        if self._loop.is_closed():
            return
        self._wait(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONNECT)
        self._loop.close()

    def _check_open(self) -> None:
        if self._loop.is_closed():
            raise RuntimeError("the engine is closed")

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SILENCE + CONNECT)

    async def _stop(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()

    async def _run(self, exchange: Exchange, content: bytes) -> None:
        try:
            async with self._client.stream("POST", "/v1/completions", content=content, headers=JSON) as answer:
                if answer.status_code != httpx.codes.OK:
                    self._refused(exchange, answer.status_code, await answer.aread())
                    return
                self._told(exchange, "accepted")
                async for chunk in _events(answer):
                    with self._news:
                        exchange.take(chunk)
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as broken:
            exchange.error = f"{type(broken).__name__}: {broken}"
        finally:
            self._told(exchange, "ended")

    def _refused(self, exchange: Exchange, status: int, raw: bytes) -> None:
        text = raw.decode(errors="replace")
        try:
            text = message_of(json.loads(text))
        except ValueError:
            text = text.strip() or "(an empty body)"
        if 400 <= status < 500:
            exchange.refusal = f"{status}: {text}"
        else:
            exchange.error = f"{status}: {text}"

    def _told(self, exchange: Exchange, what: str) -> None:
        with self._news:
            setattr(exchange, what, True)
            self._arrived += 1
            self._news.notify_all()


async def _events(answer: httpx.Response) -> AsyncIterator[Mapping[str, Any]]:
    """The events of a server-sent stream up to its [DONE]; ValueError for one that is no JSON, or a stream that ends without."""
    async for line in answer.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        yield json.loads(data)
    raise ValueError("the stream ended without data: [DONE]")


def message_of(body: Any) -> str:
    """What an error's body says, OpenAI-shaped or not."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    return str(error["message"]) if isinstance(error, Mapping) and "message" in error else json.dumps(error)
