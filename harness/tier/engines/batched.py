"""Engines that are asked by one blocking call for all that is to be generated: `Engine.generate` of SGLang, and of TokenSpeed after it.

`pump` is that call: whatever was submitted since the last one is served together, to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.tier.protocol import Completion, Outcome, Policy, Request
from harness.tier.reference.tokenizer import TierTokenizer


class BatchedServer:
    """`native` has `generate(input_ids=, sampling_params=)`, `flush_cache()` and `shutdown()`. Prompts are token ids.

    `texts` encodes and decodes: the tokenizer that the checkpoints here are built with. `longest`: tokens of a request.
    """

    lab = None
    policy: Policy | None = None
    adapters: Sequence[str] = ()
    versions: Sequence[str] = ()
    vocabulary: int | None = None

    def __init__(
        self, name: str, native: Any, *, page: int | None, capacity: int | None, host: int | None, footprint: int, longest: int
    ) -> None:
        self._name, self._native, self._text = name, native, TierTokenizer()
        self.page_size: int | None = page
        self.device_capacity, self.host_capacity, self.footprint = capacity, host, footprint
        self.max_prompt_tokens: int | None = longest - 1
        self._longest, self._last = longest, 0
        self._queued: dict[int, tuple[Sequence[int], int]] = {}
        self._results: dict[int, Completion] = {}

    def submit(self, request: Request) -> int:
        self._open()
        for field in ("salt", "adapter", "media", "model_version"):
            if getattr(request, field) is not None:
                raise ValueError(f"{self._name}: Request.{field}: not offered here, leave it None")
        tokens = self._text.encode(request.prompt) if isinstance(request.prompt, str) else request.prompt
        if not tokens or request.max_new_tokens < 1:
            raise ValueError(f"{self._name}: {len(tokens)} tokens and {request.max_new_tokens} new ones: at least 1 of each")
        if len(tokens) + request.max_new_tokens > self._longest:
            raise ValueError(f"{self._name}: {len(tokens)} tokens and {request.max_new_tokens} new ones: together at most {self._longest}")
        self._last += 1
        self._queued[self._last] = (tokens, request.max_new_tokens)
        return self._last

    def pump(self) -> None:
        engine = self._open()
        if not self._queued:
            return
        asked = list(self._queued.items())
        told = engine.generate(
            input_ids=[list(tokens) for _, (tokens, _) in asked],
            sampling_params=[{"temperature": 0.0, "max_new_tokens": new, "ignore_eos": True} for _, (_, new) in asked],
        )
        for (handle, (tokens, _)), one in zip(asked, told, strict=True):
            del self._queued[handle]
            self._results[handle] = self._completion(len(tokens), one)

    def result(self, handle: int) -> Completion | None:
        return None if handle in self._queued else self._results.pop(handle)

    def abort(self, handle: int) -> None:
        raise NotImplementedError(f"{self._name}: what generate was asked for it does to the end")

    def retract(self, handle: int) -> None:
        raise NotImplementedError(f"{self._name}: it retracts when pages run short, not when it is asked to")

    def quiesce(self, timeout: float) -> None:
        """The engine does not tell when its write-backs have landed."""

    def drop_device(self) -> None:
        raise NotImplementedError(f"{self._name}: flush_cache forgets both tiers")

    def flush(self) -> None:
        if self._queued:
            raise RuntimeError(f"{self._name}: {len(self._queued)} requests are not done")
        self._open().flush_cache()

    def usage(self) -> Mapping[str, int]:
        return {"requests": len(self._queued)}

    def close(self) -> None:
        if self._native is not None:
            self._native.shutdown()
        self._native = None
        self._queued = {}

    def _completion(self, prompt_tokens: int, told: Mapping[str, Any]) -> Completion:
        meta = told["meta_info"]
        said = tuple(told["output_ids"])
        reason = meta.get("finish_reason") or {}
        if reason.get("type") == "abort":
            return Completion(Outcome.FAILED, token_ids=said, prompt_tokens=prompt_tokens, error=str(reason.get("message")))
        return Completion(Outcome.FINISHED, self._text.decode(said), said, meta["prompt_tokens"], meta["cached_tokens"])

    def _open(self) -> Any:
        if self._native is None:
            raise RuntimeError(f"{self._name} is closed; build another one")
        return self._native
