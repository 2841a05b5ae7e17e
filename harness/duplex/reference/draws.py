"""The random draws of one sampled session: Gumbel noise from a generator of its own, so that nobody's company matters."""

from __future__ import annotations

import torch


class Draws:
    """Draws on the CPU, whatever the engine runs on: a seed means the same noise everywhere."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def fill(self, *noise: torch.Tensor) -> None:
        """The next tick's draws, into f32 tensors on the CPU: the largest of scores plus these is a sample of their softmax."""
        for part in noise:
            part.exponential_(generator=self._generator).log_().neg_()
