"""An engine seen through callers who treat their buffers in ways of their own."""

from __future__ import annotations

from typing import Any

import torch

from harness.duplex.protocol import DuplexEngine, Frame


class OverwritingEngine:
    """Hands every call on; each buffer of samples is overwritten as soon as the step that it was given to returns.

    `buffers` holds, for each step, the samples as they were given, and as the step left them.
    """

    def __init__(self, engine: DuplexEngine) -> None:
        self._engine = engine
        self._last: torch.Tensor | None = None
        self.buffers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self, pcm: torch.Tensor, *args: Any, **kwargs: Any) -> list[Frame]:
        given = pcm.clone()
        frames = self._engine.step(pcm, *args, **kwargs)
        self.buffers.append((given, pcm.clone()))
        pcm.fill_(-0.9)
        return frames


class TransposingEngine:
    """Hands every call on; the samples of a step lie column by column in memory."""

    def __init__(self, engine: DuplexEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self, pcm: torch.Tensor, *args: Any, **kwargs: Any) -> list[Frame]:
        return self._engine.step(pcm.T.contiguous().T, *args, **kwargs)
