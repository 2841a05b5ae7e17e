"""The routes: completions, models, health, metrics; and what Assay's own adapter asks, as SGLang has it: flush_cache and server_info."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from harness.tier.protocol import PrefixCacheServer
from harness.tier.server.answers import Answer
from harness.tier.server.body import CompletionBody, requests
from harness.tier.server.errors import Refusal, failed, misread, unauthorized
from harness.tier.server.metrics import Metrics
from harness.tier.server.worker import Job, Worker

OPEN_PATHS = ("/health", "/metrics")
"""Asked without a key, as by a load balancer."""


class Server:
    """One engine's. `model` is what it is called in requests; adapters are models of their own."""

    def __init__(self, worker: Worker, model: str, api_key: str | None) -> None:
        self.worker, self.model, self.metrics = worker, model, Metrics()
        self._api_key = api_key
        self._adapters = list(worker.engine.adapters)
        self._versions = list(worker.engine.versions)

    def models(self) -> dict[str, Any]:
        """The list, the model itself first."""
        one = {"object": "model", "created": 0, "owned_by": "assay", "max_model_len": self._longest()}
        names = [(self.model, None), *((name, self.model) for name in self._adapters)]
        return {"object": "list", "data": [{"id": name, **one, "parent": parent} for name, parent in names]}

    def _longest(self) -> int | None:
        prompt = self.worker.engine.max_prompt_tokens
        return None if prompt is None else prompt + 1

    def check(self, authorization: str | None) -> None:
        """Refusal unless the header holds the key."""
        if self._api_key is None:
            return
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), self._api_key.encode()):
            raise unauthorized(bool(given))

    async def start(self, body: CompletionBody) -> Answer:
        """The answer to a body, its jobs queued: all, or none and a Refusal."""
        jobs: list[Job] = []
        try:
            for request in requests(body, self.model, self._adapters, self._versions):
                jobs.append(await self.worker.submit(request))  # noqa: PERF401 (those before one that is refused must be known)
        except BaseException as wrong:
            for job in jobs:
                self.worker.leave(job)
            if isinstance(wrong, ValueError):
                raise Refusal(f"{wrong}.", param="prompt", code="invalid_value") from None
            raise
        return Answer(self.worker, body, jobs, self.metrics)

    async def complete(self, body: CompletionBody, http: Request) -> Response:
        """Of a client that leaves first, nobody reads the response."""
        answer = await self.start(body)
        if body.stream:
            return StreamingResponse(answer.events(), media_type="text/event-stream")
        whole, gone = asyncio.ensure_future(answer.whole()), asyncio.ensure_future(_gone(http))
        try:
            await asyncio.wait((whole, gone), return_when=asyncio.FIRST_COMPLETED)
            return JSONResponse(whole.result()) if whole.done() else Response(status_code=499)
        finally:
            for task in (whole, gone):
                task.cancel()
            answer.leave()

    def facts(self) -> dict[str, Any]:
        """What `PrefixCacheServer` tells of itself."""
        engine: PrefixCacheServer = self.worker.engine
        names = ("page_size", "device_capacity", "host_capacity", "footprint", "max_prompt_tokens", "vocabulary")
        policy = None if engine.policy is None else asdict(engine.policy)
        return {**{name: getattr(engine, name) for name in names}, "versions": self._versions, "policy": policy}


async def _gone(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def application(server: Server) -> FastAPI:
    """The ASGI application."""
    app = FastAPI(title="assay serve", openapi_url=None)
    _errors(app)

    @app.middleware("http")
    async def keyed(http: Request, further: Any) -> Response:
        try:
            if http.url.path not in OPEN_PATHS:
                server.check(http.headers.get("authorization"))
        except Refusal as refusal:
            return refusal.response()
        return await further(http)

    @app.post("/v1/completions")
    async def completions(http: Request, body: Annotated[CompletionBody, Body()]) -> Response:
        return await server.complete(body, http)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return server.models()

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=503 if server.worker.broken else 200)

    @app.get("/metrics")
    async def metrics() -> Response:
        held = await server.worker.call(lambda engine: dict(engine.usage()))
        return PlainTextResponse(server.metrics.text(held), media_type="text/plain; version=0.0.4")

    @app.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return server.facts()

    @app.post("/flush_cache")
    async def flush_cache() -> dict[str, Any]:
        try:
            await server.worker.call(lambda engine: engine.flush())
        except RuntimeError as busy:
            raise Refusal(f"{busy}.", status=409) from None
        return {"success": True}

    @app.post("/quiesce")
    async def quiesce(timeout: Annotated[float, Body(embed=True, gt=0)]) -> dict[str, Any]:
        try:
            await server.worker.call(lambda engine: engine.quiesce(timeout))
        except TimeoutError as late:
            raise failed(f"{late}.") from None
        return {"success": True}

    return app


def _errors(app: FastAPI) -> None:
    """Every error has OpenAI's shape."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> Response:
        return refusal.response()

    @app.exception_handler(RequestValidationError)
    async def unreadable(_: Request, wrong: RequestValidationError) -> Response:
        return misread(wrong).response()

    @app.exception_handler(HTTPException)
    async def elsewhere(http: Request, wrong: HTTPException) -> Response:
        return Refusal(f"{http.method} {http.url.path}: {wrong.detail}.", status=wrong.status_code).response()

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        return failed(f"{type(error).__name__}: {error}").response()
