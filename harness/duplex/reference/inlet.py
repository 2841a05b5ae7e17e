"""What comes in on a tick: looked at whole before anything moves, and heard only as far as it is the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from harness.duplex.reference.config import FRAME_SIZE


class SessionError(Exception):
    """Ends one session; its text is what the session's frame says."""


@dataclass(frozen=True)
class Input:
    """One tick's input of all slots: `audio` f32[slots, FRAME_SIZE], of which `lengths` samples are the callers', and who takes part."""

    audio: np.ndarray
    lengths: tuple[int, ...]
    live: tuple[bool, ...]


class Inlet:
    """Reads the arguments of `step` for an engine of so many slots."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._everyone = (True,) * slots
        self._whole = (FRAME_SIZE,) * slots

    def read(self, pcm: torch.Tensor, live: Sequence[bool] | None, valid_samples: Sequence[int] | None) -> Input:
        """ValueError for a wrong shape, dtype, device, length or value."""
        if not isinstance(pcm, torch.Tensor) or pcm.shape != (self._slots, FRAME_SIZE) or pcm.dtype != torch.float32 or pcm.is_cuda:
            raise ValueError(f"pcm is {_described(pcm)}; write float32[{self._slots}, {FRAME_SIZE}] on the CPU")
        return Input(pcm.detach().numpy(), self.lengths(valid_samples), self.taking_part(live))

    def taking_part(self, live: Sequence[bool] | None) -> tuple[bool, ...]:
        """Of each slot."""
        if live is None:
            return self._everyone
        if len(live) != self._slots or not all(isinstance(flag, bool | np.bool_) for flag in live):
            raise ValueError(f"live = {live!r}; write a bool for each of the {self._slots} slots")
        return tuple(bool(flag) for flag in live)

    def lengths(self, valid_samples: Sequence[int] | None) -> tuple[int, ...]:
        """How many samples of each slot are its caller's."""
        if valid_samples is None:
            return self._whole
        whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) and 0 <= n <= FRAME_SIZE for n in valid_samples)
        if len(valid_samples) != self._slots or not whole:
            raise ValueError(
                f"valid_samples = {valid_samples!r}; write an integer from 0 to {FRAME_SIZE} for each of the {self._slots} slots"
            )
        return tuple(int(n) for n in valid_samples)

    def heard(self, given: Input, slot: int) -> np.ndarray:
        """f32[FRAME_SIZE] of one slot, a copy: silence where the padding was. SessionError for samples that are not finite."""
        audio = self.unpadded(given.audio[slot], given.lengths[slot])
        if not np.isfinite(audio).all():
            at = int(np.flatnonzero(~np.isfinite(audio))[0])
            raise SessionError(f"sample {at} of the caller's audio is {audio[at]}: not finite")
        return audio

    @staticmethod
    def unpadded(audio: np.ndarray, length: int) -> np.ndarray:
        """The first `length` samples, and silence behind them."""
        audio = audio.copy()
        audio[length:] = 0.0
        return audio


def _described(pcm: object) -> str:
    return f"{pcm.dtype}{list(pcm.shape)} on {pcm.device}" if isinstance(pcm, torch.Tensor) else type(pcm).__name__
