"""`assay serve`: builds the engine, listens, prints the address, and serves until it is told to stop."""

from __future__ import annotations

import argparse
import signal
import socket
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

import uvicorn

from harness.core import determinism, faults
from harness.core.clock import SystemClock
from harness.core.registry import Selection
from harness.core.spec import RegistryError
from harness.tier.server.app import Server, application
from harness.tier.server.worker import as_worker

BACKLOG = 1024
"""Connections that may wait to be accepted."""
FAREWELL = 5
"""Seconds for requests under way when it is told to stop."""
IDLE = 75
"""Seconds that a connection may idle between two requests: longer than clients keep them, so that none is closed under a request."""


def serve(selection: Selection, args: argparse.Namespace) -> None:
    """Until SIGINT or SIGTERM. RegistryError for an engine that cannot be served, or an address that cannot be had."""
    spec = selection.spec
    profile = next((p for p in spec.profiles.values() if p.device == args.device), None)
    if profile is None or spec.kind != "tier":
        raise RegistryError(f"assay serve: {spec.name} is no prefix-cache server on {args.device}")
    determinism.apply(determinism.Policy(), args.seed)
    with suppress(KeyboardInterrupt), ExitStack() as opened:
        listener = _listener(args.host, args.port)
        opened.callback(listener.close)
        for name in args.fault:
            opened.enter_context(faults.find_fault(name).planted())
        opened.callback(_confess)
        worker = as_worker(spec.load().build(selection.config(profile, args.seed), SystemClock()))
        opened.callback(worker.close)
        app = application(Server(worker, args.model, args.api_key))
        config = uvicorn.Config(
            app, log_level="warning", backlog=BACKLOG, timeout_keep_alive=IDLE, timeout_graceful_shutdown=FAREWELL, lifespan="off"
        )
        signal.signal(signal.SIGTERM, _leave)  # uvicorn stops by its own, and then passes the signal on to this
        _Announcing(config, f"http://{args.host}:{listener.getsockname()[1]}").run(sockets=[listener])


class _Announcing(uvicorn.Server):
    """Prints its address once it listens."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(f"assay serve: {self._url}", flush=True)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as wrong:
        raise RegistryError(f"--host {host} --port {port}: {wrong.strerror}") from None


def _confess() -> None:
    """What went wrong inside planted faults, for whoever reads the log."""
    for mistake in faults.MISTAKES:
        print(f"a mistake in the fault: {mistake}", flush=True)
