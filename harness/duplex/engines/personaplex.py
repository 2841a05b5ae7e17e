"""Adapter of vLLM-Omni's full-duplex PersonaPlex engine (`PersonaPlexEngine`, vllm-omni 0.28.0)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.core.threads import one_thread
from harness.duplex.engines import personaplex_load
from harness.duplex.engines.arithmetic import BACKENDS, attention
from harness.duplex.engines.personaplex_checkpoint import cached
from harness.duplex.engines.personaplex_sizes import ROWS, SIZES
from harness.duplex.floor import weight_bytes
from harness.duplex.protocol import Dialogue, Frame, Parity, Phase, Session

RUNTIME = "experimental/fullduplex/personaplex/runtime.py"
"""Where the engine lies in its package; releases after 0.28.0 have no such file."""
PERSONAS = ("You only speak like a pirate.", "You never answer questions about the teacher, whoever asks.")
"""Texts of ours beside the engine's default."""
DEFAULTS = {"weights": "synthetic", "size": "auto", "batch": "4", "sdpa": "default"}


@dataclass
class Occupant:
    """Who is in a slot, as far as the engine leaves it to its caller to know."""

    epoch: int = 0
    spoken: int = 0
    steps: deque[Any] = field(default_factory=deque)
    """What is left of the prefill."""
    prefilling: bool = False


class PersonaPlex:
    """`duplex/personaplex`. A recycled slot's prefill is replayed step by step, as the engine's own serving loop does it.

    Voices: the engine holds one for the whole batch, that of its configuration; a session has no say.
    """

    sample_rate: int
    frame_size: int
    streams = ROWS
    delay = 0
    """A slot's first live tick gives a frame at once: that of the prefill's last tick, which was forced."""
    parity = Parity.TEXT
    voices: Sequence[str] = ()
    dialogues: Sequence[Dialogue] = ()
    lab = None

    @staticmethod
    def available() -> str | None:
        missing = [name for name in ("vllm_omni", "vllm") if find_spec(name) is None]
        if missing:
            return f"{' and '.join(missing)} not installed; see ci/engines/vllm-omni.txt"
        spec = find_spec("vllm_omni")
        if spec is None or spec.origin is None or not (Path(spec.origin).parent / RUNTIME).is_file():
            return "this vllm-omni has no PersonaPlexEngine: 0.28.0 has it, later releases moved the model into the staged engine"
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> PersonaPlex:
        """ValueError for an option, or a value of one, that it does not know; Unavailable where the hub refuses the weights."""
        unknown = set(config.options) - set(DEFAULTS)
        if unknown:
            raise ValueError(f"duplex/personaplex: unknown options {sorted(unknown)}; it has {', '.join(DEFAULTS)}")
        given = DEFAULTS | dict(config.options)
        size, batch = _size(given["weights"], given["size"], config.device), _batch(given["batch"])
        if given["sdpa"] not in BACKENDS:
            raise ValueError(f"duplex/personaplex: option sdpa = {given['sdpa']!r}: write {', '.join(BACKENDS)}")
        # vLLM reads it while it is imported.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        if given["weights"] == "hub":
            native = personaplex_load.from_hub(batch, config.device)
        else:
            native = personaplex_load.from_directory(cached(size), SIZES[size], batch, config.device)
        return PersonaPlex(native, given["sdpa"])

    def __init__(self, native: Any, sdpa: str) -> None:
        self._native: Any | None = native
        self._device, self._sdpa = native.config.device, sdpa
        self.slots = native.config.batch_size
        self.sample_rate, self.frame_size = native.sample_rate, native.frame_size
        # Of a ring of `context` cells the engine hides the oldest, a convention that it has from Moshi.
        self.window: int | None = native._temporal.context - 1
        parts = (native._codec, native._temporal, native._dep)
        self.weight_bytes: int | None = weight_bytes(*(part for part in parts if isinstance(part, torch.nn.Module)))
        self.personas: Sequence[str] = (native.config.persona, *PERSONAS)
        self._occupants: list[Occupant] = []

    def open(self) -> None:
        """The codec's caches are made anew, as the load makes them: `open_batch` alone leaves a caller's NaN in them."""
        engine = self._engine()
        with self._arithmetic():
            engine._codec.streaming_init(self.slots)
            engine.open_batch()
        self._occupants = [Occupant() for _ in range(self.slots)]

    def recycle(self, slot: int, session: Session) -> None:
        engine, steps = self._engine(), self._steps(session)
        engine.recycle_slot(slot)
        self._occupants[slot] = Occupant(self._occupants[slot].epoch + 1, 0, deque(steps), prefilling=True)

    def prefill_ticks(self, session: Session) -> int:
        return sum(step.kind != "voice_end" for step in self._steps(session))

    def step(self, pcm: torch.Tensor, live: Sequence[bool] | None = None, valid_samples: Sequence[int] | None = None) -> list[Frame]:
        if live is not None or valid_samples is not None:
            raise NotImplementedError("personaplex: every slot takes a whole frame on every tick")
        if not isinstance(pcm, torch.Tensor):
            raise TypeError(f"pcm is a {type(pcm).__name__}; give a tensor")
        engine = self._engine()
        prefill = {slot: step for slot, occupant in enumerate(self._occupants) if (step := self._begin(engine, slot, occupant))}
        with self._arithmetic():
            outputs = engine.step_batch(pcm.numpy(), prefill or None)
        for slot in prefill:
            self._occupants[slot].steps.popleft()
        return [self._frame(engine, slot, output, slot in prefill) for slot, output in enumerate(outputs)]

    def admit(self, session: Session) -> int:
        raise NotImplementedError("personaplex: every slot is occupied from open on; recycle one")

    def release(self, slot: int) -> None:
        raise NotImplementedError("personaplex: an occupant goes when its slot is recycled")

    finish = cancel = release

    def usage(self) -> Mapping[str, int]:
        return {"slots": len(self._occupants)}

    def close(self) -> None:
        self._native, self._occupants = None, []
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _engine(self) -> Any:
        if self._native is None:
            raise RuntimeError("this engine was closed; build another")
        return self._native

    def _steps(self, session: Session) -> list[Any]:
        if session.voice is not None or session.seed is not None:
            raise ValueError(f"{session}: PersonaPlexEngine has one voice for all its slots, and samples nothing")
        return self._engine().prefill_steps(session.persona)

    @staticmethod
    def _begin(engine: Any, slot: int, occupant: Occupant) -> Any | None:
        """The step that this tick is to replay; None: the tick is live. It is taken off once the tick has been."""
        if not occupant.prefilling:
            return None
        while occupant.steps and occupant.steps[0].kind == "voice_end":
            engine.voice_end(slot)
            occupant.steps.popleft()
        if occupant.steps:
            return occupant.steps[0]
        engine.end_prefill(slot)
        occupant.prefilling = False
        return None

    def _frame(self, engine: Any, slot: int, output: Any | None, replayed: bool) -> Frame:
        occupant = self._occupants[slot]
        if output is None:
            return Frame(Phase.PREFILL if replayed else Phase.WARMUP, epoch=occupant.epoch, seq=occupant.spoken)
        frame = Frame(
            Phase.LIVE,
            audio=torch.from_numpy(output.audio),
            text=output.text,
            tokens=engine.last_out_tokens[slot],
            epoch=occupant.epoch,
            seq=occupant.spoken,
        )
        occupant.spoken += 1
        return frame

    @contextmanager
    def _arithmetic(self) -> Iterator[None]:
        """Around each tick: one thread on a CPU, the attention backend on a card."""
        with one_thread() if self._device == "cpu" else attention(self._sdpa):
            yield


def _size(weights: str, size: str, device: str) -> str:
    if weights not in ("hub", "synthetic"):
        raise ValueError(f"duplex/personaplex: option weights = {weights!r}: write hub or synthetic")
    if size not in ("auto", *SIZES):
        raise ValueError(f"duplex/personaplex: option size = {size!r}: write auto, {', '.join(SIZES)}")
    if weights == "hub" and size == "tiny":
        raise ValueError("duplex/personaplex: option size = tiny: the published weights are 7b; write weights=synthetic")
    if size != "auto":
        return size
    return "tiny" if device == "cpu" and weights == "synthetic" else "7b"


def _batch(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"duplex/personaplex: option batch = {text!r}: write how many slots, 1 or more")
    return int(text)
