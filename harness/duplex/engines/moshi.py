"""Adapter of Kyutai's Moshi (`moshi` 0.2.13): its codec Mimi and its `LMGen`, in lockstep for a batch.

The engine's own means for a batch of independent sessions are two masks of rows: `reset_streaming(mask)` begins a row anew,
`set_exec_mask(mask)` leaves the others as they are. A free slot is a row that is left out of every tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import torch

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.duplex.engines import moshi_weights
from harness.duplex.engines.moshi_options import MoshiOptions
from harness.duplex.engines.slots import Slots
from harness.duplex.floor import weight_bytes
from harness.duplex.protocol import Dialogue, Frame, Parity, Phase, Session


class MoshiDuplex:
    """`duplex/moshi`. Greedy: the engine samples a batch from one generator, so no session has draws of its own."""

    lab = None
    parity = Parity.TEXT
    voices: Sequence[str] = ()
    personas: Sequence[str] = ()
    dialogues: Sequence[Dialogue] = ()
    preload = ("moshi.models",)

    @staticmethod
    def available() -> str | None:
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> MoshiDuplex:
        """ValueError for a wrong option; Unavailable for published weights that this account may not have."""
        options = MoshiOptions.parse(config.options, config.device)
        device = torch.device(config.device)
        weights = moshi_weights.published(device) if options.published else moshi_weights.random(options.size, device)
        return MoshiDuplex(weights, options, device)

    def __init__(self, weights: moshi_weights.Weights, options: MoshiOptions, device: torch.device) -> None:
        self._weights, self._options, self._device = weights, options, device
        self._streaming: ExitStack | None = None
        self._closed = False
        self._slots = Slots(options.batch)
        self.slots = options.batch
        self.sample_rate, self.frame_size = weights.mimi.sample_rate, weights.mimi.frame_size
        self.streams = 1 + weights.lm.dep_q
        self.delay = max(weights.lm.delays)
        self.window = weights.lm.context
        self.weight_bytes: int | None = weight_bytes(weights.mimi, weights.lm)

    def open(self) -> None:
        """The engine's caches are made anew, rather than reset."""
        from moshi.models import LMGen

        if self._closed:
            raise RuntimeError("duplex/moshi is closed; build another one")
        self._stop()
        self._generator = LMGen(self._weights.lm, use_sampling=False, support_out_of_sync=True)
        self._streaming = ExitStack()
        self._streaming.callback(self._weights.mimi.streaming(self.slots).close)
        self._streaming.callback(self._generator.streaming(self.slots).close)
        self._slots = Slots(self.slots)
        for slot in range(self.slots):
            self._slots.occupy(slot)

    def admit(self, session: Session) -> int:
        slot = self._slots.free()
        self.recycle(slot, session)
        return slot

    def release(self, slot: int) -> None:
        self._slots.vacate(slot)

    cancel = release

    def recycle(self, slot: int, session: Session) -> None:
        self._require_open()
        _refuse(session)
        self._slots.occupy(slot)
        row = torch.arange(self.slots) == slot
        with torch.no_grad():
            self._weights.mimi.reset_streaming(row)
            self._generator.reset_streaming(row)

    def prefill_ticks(self, session: Session) -> int:
        _refuse(session)
        return 0

    def finish(self, slot: int) -> None:
        raise NotImplementedError("duplex/moshi: no call of the engine tells the end of an input")

    def step(self, pcm: torch.Tensor, live: Sequence[bool] | None = None, valid_samples: Sequence[int] | None = None) -> list[Frame]:
        self._require_open()
        if valid_samples is not None:
            raise NotImplementedError("duplex/moshi: a frame is heard whole, valid_samples has no counterpart in the engine")
        running = self._running(pcm, live)
        said, audio = self._tick(pcm, torch.tensor(running))
        return [self._frame(slot, running[slot], said[slot], audio[slot]) for slot in range(self.slots)]

    def usage(self) -> Mapping[str, int]:
        return {"slots": self._slots.occupied}

    def close(self) -> None:
        if not self._closed:
            self._stop()
            del self._weights
        self._closed = True
        self._slots = Slots(self.slots)

    def _running(self, pcm: torch.Tensor, live: Sequence[bool] | None) -> list[bool]:
        """Which slots the tick moves; TypeError and ValueError for what it cannot be given."""
        if not isinstance(pcm, torch.Tensor):
            raise TypeError(f"pcm is a {type(pcm).__name__}; give a tensor")
        if pcm.shape != (self.slots, self.frame_size) or pcm.dtype != torch.float32:
            raise ValueError(f"pcm is {pcm.dtype}{list(pcm.shape)}; give float32[{self.slots}, {self.frame_size}]")
        if live is not None and len(live) != self.slots:
            raise ValueError(f"live has {len(live)} entries for {self.slots} slots")
        return [self._slots.is_occupied(slot) and (live is None or bool(live[slot])) for slot in range(self.slots)]

    def _tick(self, pcm: torch.Tensor, running: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """i64[slots, streams] and f32[slots, frame_size], on the CPU, of the rows that run."""
        mimi, generator = self._weights.mimi, self._generator
        with torch.no_grad(), self._options.arithmetic(self._device):
            mimi.set_exec_mask(running)
            generator.set_exec_mask(running)
            said = generator.step(mimi.encode(pcm.to(self._device)[:, None]))
            # Tokens are there for rows that ran and are past their delay; the codec hears of no others.
            mimi.set_exec_mask(self._is_complete(said[..., 0]))
            audio = mimi.decode(said[:, 1:].clamp(min=0))
        return said[..., 0].cpu(), audio[:, 0].cpu()

    def _is_complete(self, tokens: torch.Tensor) -> torch.Tensor:
        """bool[slots] of i64[slots, streams]: whether the engine gave a frame, where it gives tokens that stand for none otherwise."""
        return tokens[:, 0] != self._weights.lm.ungenerated_token_id

    def _frame(self, slot: int, ran: bool, tokens: torch.Tensor, audio: torch.Tensor) -> Frame:
        epoch = self._slots.epoch(slot)
        if not self._slots.is_occupied(slot):
            return Frame(Phase.FREE, epoch=epoch)
        if not ran:
            return Frame(Phase.PAUSED, epoch=epoch)
        if not self._is_complete(tokens[None]):
            return Frame(Phase.WARMUP, epoch=epoch)
        seq = self._slots.delivered(slot)
        return Frame(Phase.LIVE, audio.clone(), self._weights.piece(int(tokens[0])), tokens.clone(), epoch, seq)

    def _require_open(self) -> None:
        if self._streaming is None:
            raise RuntimeError("duplex/moshi is closed; build another one" if self._closed else "duplex/moshi: open() it first")

    def _stop(self) -> None:
        if self._streaming is not None:
            self._streaming.close()
            self._streaming = None
            del self._generator


def _refuse(session: Session) -> None:
    """ValueError for what a session of this engine cannot have."""
    for name in ("persona", "voice", "seed"):
        if getattr(session, name) is not None:
            raise ValueError(f"duplex/moshi: Session.{name} = {getattr(session, name)!r}; its sessions are all alike, leave it None")
