"""The whole network of the embedded duplex engine: codec, language model, voices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from harness.duplex.reference.codec import Codec, CodecRows
from harness.duplex.reference.config import AGENT_ROWS, CPU_TILE, FRAME_SIZE, MAX_DELAY, ROWS, SAMPLE_RATE, ModelConfig
from harness.duplex.reference.language import LanguageModel, LanguageRows
from harness.duplex.reference.layers import Bare
from harness.duplex.reference.ring import RingKV
from harness.duplex.reference.tiles import Tiles

STAGED_COLUMNS = MAX_DELAY + 2
"""Columns of the staging ring: the one read, the one decided, and those that input is written ahead to."""
VOICE = "voices."


@dataclass(frozen=True)
class Voice:
    """`embeddings` f[voice_ticks, hidden], heard first; `ring` i64[17, STAGED_COLUMNS]: what the staging ring holds after them."""

    embeddings: torch.Tensor
    ring: torch.Tensor


@dataclass
class State:
    """What R rows hold between two ticks."""

    encoder: Tiles[CodecRows]
    decoder: Tiles[CodecRows]
    language: Tiles[LanguageRows]

    def reset(self, rows: torch.Tensor) -> None:
        """Make rows new: bool[R] on the CPU."""
        for part in (self.encoder, self.decoder, self.language):
            part.reset(rows)

    def clear(self) -> None:
        """Make all rows new at once."""
        for part in (self.encoder, self.decoder, self.language):
            part.clear()

    def permute(self, source: torch.Tensor) -> None:
        """Row i becomes what row source[i] was: i64[R], a permutation."""
        for part in (self.encoder, self.decoder, self.language):
            part.permute(source)

    def poison(self, free: torch.Tensor) -> None:
        """Spoil whatever no occupied row may read: bool[R] says which rows are nobody's."""
        for part in (self.encoder, self.decoder, self.language):
            part.poison(free)


class DuplexModel(Bare):
    """One size of the network. `silence` and `sine` i64[8]: codes of the sounds that a prefill hears.

    The codec is float32 whatever the type of the rest.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        with _defaults(torch.get_default_device(), torch.float32):
            # As in the model that this one is shaped after: in bfloat16 an encoder hears other codes than it was trained to.
            self.codec = Codec(config.codec)
        self.language = LanguageModel(config)
        self.register_buffer("silence", torch.zeros(AGENT_ROWS, dtype=torch.int64))
        self.register_buffer("sine", torch.zeros(AGENT_ROWS, dtype=torch.int64))
        self.voices: dict[str, Voice] = {}

    @classmethod
    def random(cls, config: ModelConfig, seed: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> DuplexModel:
        """A network of weights drawn from `seed`, the same on every machine of the device's kind."""
        with _defaults(device, dtype):
            model = cls(config).requires_grad_(False)
        generator = torch.Generator(device).manual_seed(seed)
        initialize(model, generator)
        for name in ("default", "other"):
            model.voices[name] = model._draw_voice(generator)
        model.hear_prompts()
        return model

    @classmethod
    def load(cls, path: Path, config: ModelConfig, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> DuplexModel:
        """Read what `save` wrote. RuntimeError naming the tensors if it is not of this size."""
        with _defaults(device, dtype):
            model = cls(config).requires_grad_(False)
        tensors = load_file(path, device=str(device))
        voices = {name.removeprefix(VOICE): tensors.pop(name) for name in sorted(tensors) if name.startswith(VOICE)}
        model.load_state_dict(tensors)
        for name in dict.fromkeys(key.rpartition(".")[0] for key in voices):
            model.voices[name] = Voice(voices[f"{name}.embeddings"].to(dtype), voices[f"{name}.ring"])
        return model

    def save(self, path: Path) -> None:
        """Write weights, prompts and voices as safetensors."""
        voices = {f"{VOICE}{name}.{part}": tensor for name, voice in self.voices.items() for part, tensor in vars(voice).items()}
        save_file({name: tensor.contiguous() for name, tensor in (self.state_dict() | voices).items()}, path)

    def init_state(self, rows: int) -> State:
        """Empty state of R rows on the weights' device; on a CPU R is a multiple of CPU_TILE. ValueError if it is not."""
        like = self.silence.new_empty(0, dtype=self.language.embedding.dtype)
        tile = CPU_TILE if like.device.type == "cpu" else rows

        def ring(size: int, transformer: nn.Module) -> RingKV:
            return RingKV(transformer.config, size, like.device, next(transformer.parameters()).dtype)

        codec = self.codec
        with torch.inference_mode(False), torch.no_grad():
            stages = codec.quantizer.stages()
            return State(
                Tiles(rows, tile, lambda size: CodecRows(codec.encoder, ring(size, codec.encoder_transformer), FRAME_SIZE, stages)),
                Tiles(rows, tile, lambda size: CodecRows(codec.decoder, ring(size, codec.decoder_transformer), codec.up[0], [])),
                Tiles(rows, tile, lambda size: LanguageRows(self.config, size, like.device, like.dtype)),
            )

    @torch.no_grad()
    def hear_prompts(self, hertz: float = 440.0, amplitude: float = 0.5, ticks: int = 8) -> None:
        """Set `silence` and `sine` to what the codec calls them once it has heard `ticks` of them."""
        time = torch.arange(ticks * FRAME_SIZE, device=self.silence.device, dtype=torch.float64) / SAMPLE_RATE
        tone = (amplitude * torch.sin(2 * math.pi * hertz * time)).float()
        codes = self.codec.encode_sequence(torch.stack((torch.zeros_like(tone), tone)))
        self.silence.copy_(codes[0, -1])
        self.sine.copy_(codes[1, -1])

    def _draw_voice(self, generator: torch.Generator) -> Voice:
        config, like = self.config, self.language.embedding
        embeddings = torch.randn(config.voice_ticks, config.temporal.hidden, generator=generator, device=like.device).to(like.dtype)
        ring = torch.randint(config.audio_card, (ROWS, STAGED_COLUMNS), generator=generator, device=like.device)
        return Voice(embeddings, ring)


def initialize(model: nn.Module, generator: torch.Generator) -> None:
    """Draw all parameters: norms 1, biases 0, embeddings so that a column's sum is of size 1, and all else by its inputs."""
    for name, parameter in model.named_parameters():
        leaf = name.rpartition(".")[2]
        with torch.no_grad():
            if leaf.endswith("scale"):
                parameter.fill_(1)
            elif leaf == "bias":
                parameter.zero_()
            elif leaf == "books":
                parameter.normal_(0, 1, generator=generator)
            else:
                fan = ROWS if leaf.endswith("embedding") else parameter.shape[-2]
                parameter.normal_(0, fan**-0.5, generator=generator)


@contextmanager
def _defaults(device: torch.device | str, dtype: torch.dtype) -> Iterator[None]:
    """What is made within is made on this device, in this type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)
