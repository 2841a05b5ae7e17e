"""Servers that are asked over HTTP: `tier/openai`, anybody's; `tier/reference-http`, `assay serve`; `tier/vllm-server`, vLLM's own."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.core import faults
from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.core.verdict import Unavailable
from harness.tier import checkpoint
from harness.tier.engines.launched import Command, Forked, Launched
from harness.tier.engines.openai_server import Facts, OpenAIServer
from harness.tier.engines.served import Served, free_port
from harness.tier.protocol import Request

KEY_VARIABLE = "OPENAI_API_KEY"
PROBE = "Does this server say what it has cached?"
PATIENCE = 120.0
"""Seconds for a completion that only asks what usage the server gives."""


class AnyServer:
    """`tier/openai`: at the option `url`, or started from `command`."""

    @staticmethod
    def available() -> str | None:
        """Only a build knows its options."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> OpenAIServer:
        """Unavailable without an address, or for a server that does not say what the options leave out; ValueError for a wrong option."""
        options = config.options
        key = options["api_key"] or os.environ.get(KEY_VARIABLE) or None
        facts = Facts(options["model"] or None, _count(options, "capacity"), _count(options, "page"), _count(options, "footprint") or 1)
        if not options["url"] and not options["command"]:
            raise Unavailable("no server: give --engine tier/openai:url=http://HOST:PORT, or command=COMMAND with {port} in it")
        if not options["command"]:
            return _told(OpenAIServer(options["url"].rstrip("/").removesuffix("/v1"), key, facts))
        port = free_port()
        command = [word.replace("{port}", str(port)) for word in shlex.split(options["command"])]
        url = options["url"].replace("{port}", str(port)) or f"http://127.0.0.1:{port}"
        return _started(lambda log: Command(command, {}, log), url, key, facts, options)


class ReferenceOverHttp:
    """`tier/reference-http`: the embedded engine, in a process of its own, behind `assay serve`."""

    @staticmethod
    def available() -> str | None:
        """It ships with Assay, and needs the loopback device alone."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> OpenAIServer:
        """RuntimeError or TimeoutError, with the server's log, where it does not start. Faults planted here are planted there."""
        given = ",".join(f"{name}={value}" for name, value in config.options.items() if name != "deadline")
        key = secrets.token_hex(8)
        arguments = [
            "serve",
            "--engine",
            f"tier/reference:{given}",
            "--device",
            config.device,
            "--seed",
            str(config.seed),
            "--api-key",
            key,
        ]
        arguments += [word for name in faults.planted() for word in ("--fault", name)]
        return _started(lambda log: Forked(arguments, log), None, key, Facts(), config.options)


class VllmServer:
    """`tier/vllm-server`: vLLM's OpenAI server on a small checkpoint with random weights."""

    @staticmethod
    def available() -> str | None:
        """What the package lacks shows when it is started."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> OpenAIServer:
        """As `ReferenceOverHttp.build`."""
        options = config.options
        pages, page, port, key = _count(options, "device_pages") or 1, _count(options, "page") or 1, free_port(), secrets.token_hex(8)
        longest = min(checkpoint.LONGEST, (pages - 1) * page)
        arguments = {
            "model": checkpoint.cached(options["model"], "tiny"),
            "served-model-name": "tiny",
            "host": "127.0.0.1",
            "port": port,
            "api-key": key,
            # One block of the pool stands for "none".
            "num-gpu-blocks-override": pages,
            "block-size": page,
            "max-model-len": longest,
            "max-num-seqs": options["max_running"],
            "seed": config.seed,
            # Saves a process, and with it ten seconds of imports.
            "distributed-executor-backend": "uni",
        }
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager", "--enable-prompt-tokens-details"]
        command += [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_SERVER_DEV_MODE": "1",  # the path that empties the cache
            "VLLM_NO_USAGE_STATS": "1",
        }
        facts = Facts("tiny", vocabulary=checkpoint.vocabulary(options["model"], "tiny"))
        return _started(lambda log: Command(command, environment, log), f"http://127.0.0.1:{port}", key, facts, options)


def _started(
    launch: Callable[[Path], Launched], url: str | None, key: str | None, facts: Facts, options: Mapping[str, str]
) -> OpenAIServer:
    served = Served(launch, url, float(_count(options, "deadline") or 1))
    try:
        return _told(OpenAIServer(served.url, key, facts, served))
    except BaseException:
        served.close()
        raise


def _told(server: OpenAIServer) -> OpenAIServer:
    """The server, if it says what its checks compare."""
    try:
        if server.device_capacity is None:
            raise Unavailable(f"{server.url} does not say how many tokens it can keep: give the option capacity")
        handle = server.submit(Request(PROBE, 1))
        server.wait(handle, PATIENCE)
        answer = server.result(handle)
        if answer is not None and answer.error is None and answer.cached_tokens is None:
            raise Unavailable(
                f"usage of {server.url} has no prompt_tokens_details.cached_tokens: start vLLM with --enable-prompt-tokens-details, "
                "SGLang and TokenSpeed with --enable-cache-report"
            )
        server.flush()
    except BaseException:
        server.close()
        raise
    return server


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options[name]
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"option {name} = {text!r}: write a number of at least 1")
    return int(text)
