"""The codec of a synthetic PersonaPlex checkpoint: Mimi in Moshi's layout, random, loud enough that sounds differ in their codes.

All vectors of a codebook are of one length, so that the nearest is the one of the nearest direction and every code is used.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import torch

from harness.duplex.engines.personaplex_sizes import AUDIO_CARD, CODEC_LAYERS, STRIDES, Codec
from harness.duplex.engines.personaplex_weights import FIRM
from harness.duplex.engines.streamed_safetensors import Planned

KERNEL, LAST_KERNEL, RESIDUAL_KERNEL = 7, 3, 3
LOUD_IN = 8.0
"""Gain of the encoder's first convolution: speech is quiet, and a bias must not drown it."""
LOUD_OUT = 0.05
"""Gain of the decoder's last: audio stays between -1 and 1."""
BIAS = 0.1
LAYER_SCALE = 0.3
FAINT = 0.01
"""The length of the vectors of the codebooks that are not firm, beside those that are."""


class _Plan:
    """Collects tensors; each is drawn from a generator of its own name."""

    def __init__(self, seed: int) -> None:
        self.tensors: dict[str, Planned] = {}
        self._seed = seed

    def add(self, name: str, shape: tuple[int, ...], make: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """f32[shape]: `make` of standard normal values."""
        seed = zlib.crc32(f"{self._seed} {name}".encode())
        self.tensors[name] = Planned(
            shape, torch.float32, lambda: make(torch.randn(shape, generator=torch.Generator().manual_seed(seed))).contiguous()
        )

    def scaled(self, name: str, shape: tuple[int, ...], scale: float) -> None:
        self.add(name, shape, lambda drawn: drawn * scale)

    def constant(self, name: str, shape: tuple[int, ...], value: float) -> None:
        self.add(name, shape, lambda drawn: torch.full_like(drawn, value))

    def conv(self, name: str, out: int, into: int, kernel: int, gain: float = 1.0) -> None:
        """A convolution that keeps the root mean square of what it is given, times `gain`."""
        self.scaled(f"{name}.weight", (out, into, kernel), gain / math.sqrt(into * kernel))
        self.scaled(f"{name}.bias", (out,), BIAS * gain)

    def transposed(self, name: str, into: int, out: int, stride: int) -> None:
        """A transposed convolution of kernel 2 x stride: each output sees two inputs."""
        self.scaled(f"{name}.weight", (into, out, 2 * stride), 1 / math.sqrt(2 * into))
        self.scaled(f"{name}.bias", (out,), BIAS)


def codec(size: Codec, seed: int) -> dict[str, Planned]:
    """Every tensor of the codec's file."""
    plan = _Plan(seed)
    _encoder(plan, size)
    _decoder(plan, size)
    # The resamplers; the second has a filter for each channel.
    plan.scaled("downsample.conv.conv.conv.weight", (size.hidden, size.hidden, 4), 1 / math.sqrt(4 * size.hidden))
    plan.scaled("upsample.convtr.convtr.convtr.weight", (size.hidden, 1, 4), 1 / math.sqrt(2))
    for which in ("encoder", "decoder"):
        _transformer(plan, size, f"{which}_transformer")
    _quantizer(plan, size, "rvq_first", range(1))
    _quantizer(plan, size, "rvq_rest", range(1, size.quantizers))
    return plan.tensors


def _residual(plan: _Plan, base: str, width: int) -> None:
    plan.conv(f"{base}.block.1.conv.conv", width // 2, width, RESIDUAL_KERNEL)
    plan.conv(f"{base}.block.3.conv.conv", width, width // 2, 1, 0.5)


def _encoder(plan: _Plan, size: Codec) -> None:
    plan.conv("encoder.model.0.conv.conv", size.filters, 1, KERNEL, LOUD_IN)
    width, at = size.filters, 1
    for stride in reversed(STRIDES):
        _residual(plan, f"encoder.model.{at}", width)
        plan.conv(f"encoder.model.{at + 2}.conv.conv", 2 * width, width, 2 * stride)
        width, at = 2 * width, at + 3
    plan.conv(f"encoder.model.{at + 1}.conv.conv", size.hidden, width, LAST_KERNEL)


def _decoder(plan: _Plan, size: Codec) -> None:
    width, at = size.filters << len(STRIDES), 2
    plan.conv("decoder.model.0.conv.conv", width, size.hidden, KERNEL)
    for stride in STRIDES:
        plan.transposed(f"decoder.model.{at}.convtr.convtr", width, width // 2, stride)
        width, at = width // 2, at + 1
        _residual(plan, f"decoder.model.{at}", width)
        at += 2
    plan.conv(f"decoder.model.{at}.conv.conv", 1, width, LAST_KERNEL, LOUD_OUT)


def _transformer(plan: _Plan, size: Codec, which: str) -> None:
    hidden, inner = size.hidden, size.feedforward
    for layer in range(CODEC_LAYERS):
        base = f"{which}.transformer.layers.{layer}"
        plan.scaled(f"{base}.self_attn.in_proj_weight", (3 * hidden, hidden), 1 / math.sqrt(hidden))
        plan.scaled(f"{base}.self_attn.out_proj.weight", (hidden, hidden), 1 / math.sqrt(hidden))
        plan.scaled(f"{base}.linear1.weight", (inner, hidden), 1 / math.sqrt(hidden))
        plan.scaled(f"{base}.linear2.weight", (hidden, inner), 1 / math.sqrt(inner))
        for norm in ("norm1", "norm2"):
            plan.constant(f"{base}.{norm}.weight", (hidden,), 1.0)
            plan.constant(f"{base}.{norm}.bias", (hidden,), 0.0)
        for scale in ("layer_scale_1", "layer_scale_2"):
            plan.constant(f"{base}.{scale}.scale", (hidden,), LAYER_SCALE)


def _quantizer(plan: _Plan, size: Codec, which: str, codebooks: range) -> None:
    base = f"quantizer.{which}"
    plan.scaled(f"{base}.input_proj.weight", (size.code_dim, size.hidden, 1), 1 / math.sqrt(size.hidden))
    plan.scaled(f"{base}.output_proj.weight", (size.hidden, size.code_dim, 1), 1 / math.sqrt(size.code_dim))
    for layer, codebook in enumerate(codebooks):
        book = f"{base}.vq.layers.{layer}._codebook"
        length = math.sqrt(size.code_dim) * (1.0 if codebook < FIRM else FAINT)
        plan.add(f"{book}.embedding_sum", (AUDIO_CARD, size.code_dim), lambda drawn, length=length: _of_length(drawn, length))
        plan.constant(f"{book}.cluster_usage", (AUDIO_CARD,), 1.0)
        plan.constant(f"{book}._initialized", (1,), 1.0)


def _of_length(rows: torch.Tensor, length: float) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True) * length
