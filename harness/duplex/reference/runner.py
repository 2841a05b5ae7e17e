"""Runs ticks: control data to the device in one copy, the tick, its outcome back with one wait.

On a card the tick is captured once in a CUDA graph, at the padded number of rows, and replayed; without graphs the same function runs
eagerly at that same number. On a CPU the buffers are the device's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.core.threads import one_thread
from harness.duplex.reference.draws import Draws
from harness.duplex.reference.tick import IDLE, Buffers, Field, Outcome, Tick

SDPA = {
    "default": None,
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
}
"""torch's backend for attention on a card; None: torch's own choice. On a CPU torch chooses."""
BEFORE_CAPTURE = 2
"""Ticks that run before a capture, so that libraries have made their workspaces and chosen their kernels."""


class Runner:
    """One engine's ticks. Fill `samples` f32[R, FRAME_SIZE] and `control` i64[R, fields], say who is sampled, then `run`."""

    def __init__(self, tick: Tick, sdpa: str, graphs: bool) -> None:
        self.tick, self._sdpa, self._graphs = tick, SDPA[sdpa], graphs
        self.device = tick.model.silence.device
        self._on_card = self.device.type == "cuda"
        self.host = Buffers.make(tick.rows, tick.config, torch.device("cpu"), pinned=self._on_card)
        self._given = Buffers.make(tick.rows, tick.config, self.device) if self._on_card else self.host
        self.samples, self.control = self.host.pcm.numpy(), self.host.control.numpy()
        self._sampled: set[int] = set()
        self._noise_moved = False
        self._play: Callable[[], Outcome] | None = None

    def warm_up(self) -> None:
        """Ticks of all rows with a sound in them, so that a session does nothing for the first time; what they leave must be wiped.

        Once in an engine's life: what opens later finds everything made.
        """
        if self._play is not None:
            return
        self.host.pcm.copy_(torch.linspace(-0.5, 0.5, self.host.pcm.numel()).view_as(self.host.pcm))
        self.sample({})
        for position in range(BEFORE_CAPTURE):
            row = [*IDLE]
            row[Field.ACTIVE] = row[Field.HEARS] = row[Field.DELIVERS] = 1
            row[Field.POSITION] = row[Field.CURSOR] = position
            self.control[:] = row
            self._to_device()
            self._settled(self._eager)
        self._play = self.capture()

    @torch.inference_mode()
    def run(self) -> Outcome:
        """One tick, its outcome in memory of its own on the CPU."""
        if self._play is None:
            raise RuntimeError("no tick before warm_up()")
        self._to_device()
        return self._kept(self._play())

    def sample(self, draws: Mapping[int, Draws]) -> None:
        """The next tick's noise: these draws in their rows, and zeros in every other, whoever was there before."""
        text, audio = self.host.text_noise, self.host.audio_noise
        for row in self._sampled - draws.keys():
            text[row].zero_()
            audio[row].zero_()
        with one_thread():
            for row, own in draws.items():
                own.fill(text[row], audio[row])
        self._noise_moved = bool(self._sampled or draws)
        self._sampled = set(draws)

    def capture(self) -> Callable[[], Outcome]:
        """What plays a tick over the static buffers: their values are read when it is played, never now."""
        if not self._graphs:
            return self._eager
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), self._backend(), torch.cuda.graph(graph):
            outcome = self.tick(self._given)

        def replay() -> Outcome:
            graph.replay()
            return outcome

        return replay

    @torch.inference_mode()
    def _eager(self) -> Outcome:
        """Without what nobody needs on this tick, as the host's own copy of the control data tells: a boot is all prompt."""
        with self._backend():
            if not self.control[:, Field.HEARS : Field.DELIVERS + 1].any():
                return self.tick.prompt(self._given)
            return self.tick(self._given, sampled=bool(self._sampled))

    def _settled(self, play: Callable[[], Outcome]) -> None:
        """Play on a stream of its own, as a capture demands of what comes before it."""
        if not self._on_card:
            play()
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            play()
        # The next of these ticks overwrites the host's buffers.
        stream.synchronize()

    def _to_device(self) -> None:
        if not self._on_card:
            return
        self._given.packed.copy_(self.host.packed, non_blocking=True)
        if self._noise_moved:
            self._given.text_noise.copy_(self.host.text_noise, non_blocking=True)
            self._given.audio_noise.copy_(self.host.audio_noise, non_blocking=True)

    def _kept(self, outcome: Outcome) -> Outcome:
        """Out of the static buffers, which the next tick overwrites; made as ordinary tensors, which their owner may change."""
        with torch.inference_mode(False):
            kept = Outcome(torch.empty(outcome.tokens.shape, dtype=torch.int64), torch.empty(outcome.audio.shape))
        if self._on_card:
            tokens = outcome.tokens.to("cpu", non_blocking=True)
            audio = outcome.audio.to("cpu", non_blocking=True)
            torch.cuda.current_stream().synchronize()
            outcome = Outcome(tokens, audio)
        kept.tokens.copy_(outcome.tokens)
        kept.audio.copy_(outcome.audio)
        return kept

    def _backend(self) -> AbstractContextManager[None]:
        if not self._on_card:
            return one_thread()
        return nullcontext() if self._sdpa is None else sdpa_kernel(self._sdpa)
