"""The language model of a synthetic PersonaPlex checkpoint, in Moshi's layout: random, but for what decides text and coarse codebooks.

The engine replays a system prompt at another absolute position than a boot does, where bfloat16 rounds otherwise. Of a plain random
network the decisions nearly tie, so one of them flips within a few ticks and the rest is another conversation. Here

- the text is decided by the caller's first codebook alone, and codebooks 0 to 3 of the agent by the text: heads hold the very vectors
  that were embedded, so the right row wins by far more than rounding;
- codebooks 4 to 7 are random projections of the hidden state, in which all of the slot's past is: whatever reaches a slot from
  elsewhere moves them. The codec gives them a hundredth of the amplitude, so that a flip by rounding is in the bits and not in the ear.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import torch

from harness.duplex.engines.personaplex_sizes import AUDIO_CARD, CODEBOOKS, ROWS, TEXT_CARD, Size
from harness.duplex.engines.streamed_safetensors import Planned

FIRM = 4
"""Codebooks of the agent that are decided with wide margins; the others follow every change of the hidden state."""
CALLER = "emb.8.weight"
"""The embedding of the caller's first codebook: rows 0 to 7 are the agent's."""
FAINT = 0.1
"""Of the embeddings that decide nothing, beside those that do."""
MIXED = 0.5
"""What all layers together add to the residual stream."""
POOL = 16_777_259
"""Normal values that every tensor is cut from: a prime, so that no row of a power of two is cut twice. Drawing 7e9 would take minutes."""


class Noise:
    """Normal values by name: the same for a name whatever else is asked for, and before or after what."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pool = torch.randn(POOL, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)

    def __call__(self, name: str, shape: tuple[int, ...], scale: float = 1.0) -> torch.Tensor:
        """bf16[shape] of this standard deviation."""
        count = torch.Size(shape).numel()
        start = zlib.crc32(f"{self._seed} {name}".encode()) % POOL
        made = torch.empty(count, dtype=torch.bfloat16)
        filled = 0
        while filled < count:
            part = self._pool[start : start + count - filled]
            torch.mul(part, scale, out=made[filled : filled + len(part)])
            filled, start = filled + len(part), 0
        return made.view(shape)

    def directions(self, name: str, shape: tuple[int, int]) -> torch.Tensor:
        """bf16[shape] whose rows are all of the length that a standard deviation of 1 gives: no other row is as near to one as itself."""
        rows = self(name, shape).float()
        return (rows / rows.norm(dim=1, keepdim=True) * math.sqrt(shape[1])).to(torch.bfloat16)


def word(code: torch.Tensor) -> torch.Tensor:
    """The text that answers a code of the caller: spread over the vocabulary, behind its single characters."""
    return 200 + 15 * code


def language_model(size: Size, seed: int) -> dict[str, Planned]:
    """Every tensor of `model.safetensors`."""
    noise = Noise(seed)
    return _embeddings(size, noise) | _temporal(size, noise) | _depth_inputs(size, noise) | _depth_layers(size, noise)


def _planned(shape: tuple[int, ...], make: Callable[[], torch.Tensor]) -> Planned:
    return Planned(shape, torch.bfloat16, make)


def _random(noise: Noise, name: str, shape: tuple[int, ...], scale: float) -> dict[str, Planned]:
    return {name: _planned(shape, lambda: noise(name, shape, scale))}


def _directions(noise: Noise, name: str, shape: tuple[int, int]) -> dict[str, Planned]:
    return {name: _planned(shape, lambda: noise.directions(name, shape))}


def _linear(noise: Noise, name: str, shape: tuple[int, int], gain: float = 1.0) -> dict[str, Planned]:
    """A matrix that keeps the root mean square of what it is given, times `gain`."""
    return _random(noise, name, shape, gain / math.sqrt(shape[1]))


def _ones(name: str, width: int) -> dict[str, Planned]:
    return {name: _planned((1, 1, width), lambda: torch.ones(1, 1, width, dtype=torch.bfloat16))}


def _embeddings(size: Size, noise: Noise) -> dict[str, Planned]:
    plan = _random(noise, "text_emb.weight", (TEXT_CARD + 1, size.hidden), FAINT)
    for row in range(ROWS - 1):
        name = f"emb.{row}.weight"
        shape = (AUDIO_CARD + 1, size.hidden)
        plan |= _directions(noise, name, shape) if name == CALLER else _random(noise, name, shape, FAINT)
    return plan


def _temporal(size: Size, noise: Noise) -> dict[str, Planned]:
    plan: dict[str, Planned] = {}
    gain = MIXED / math.sqrt(size.layers)
    for layer in range(size.layers):
        base = f"transformer.layers.{layer}"
        plan |= _linear(noise, f"{base}.self_attn.in_proj_weight", (3 * size.hidden, size.hidden))
        plan |= _linear(noise, f"{base}.self_attn.out_proj.weight", (size.hidden, size.hidden), gain)
        plan |= _linear(noise, f"{base}.gating.linear_in.weight", (2 * size.feedforward, size.hidden))
        plan |= _linear(noise, f"{base}.gating.linear_out.weight", (size.hidden, size.feedforward), gain)
        plan |= _ones(f"{base}.norm1.alpha", size.hidden) | _ones(f"{base}.norm2.alpha", size.hidden)
    plan |= _ones("out_norm.alpha", size.hidden)

    def text_head() -> torch.Tensor:
        head = noise("text_linear.weight", (TEXT_CARD, size.hidden), FAINT / math.sqrt(size.hidden))
        codes = torch.arange(AUDIO_CARD)
        head[word(codes)] = noise.directions(CALLER, (AUDIO_CARD + 1, size.hidden))[:AUDIO_CARD] / math.sqrt(size.hidden)
        return head

    return plan | {"text_linear.weight": _planned((TEXT_CARD, size.hidden), text_head)}


def _depth_inputs(size: Size, noise: Noise) -> dict[str, Planned]:
    """Embeddings and heads of the depth transformer. Head k of the firm ones finds what was embedded before step k."""
    width = size.depth_hidden
    plan = _directions(noise, "depformer_text_emb.weight", (TEXT_CARD + 1, width))
    for step in range(CODEBOOKS - 1):
        name, shape = f"depformer_emb.{step}.weight", (AUDIO_CARD + 1, width)
        plan |= _directions(noise, name, shape) if step < FIRM - 1 else _random(noise, name, shape, FAINT)
    for step in range(CODEBOOKS):
        plan |= _linear(noise, f"depformer_in.{step}.weight", (width, size.hidden), FAINT if step < FIRM else 1.0)
        if step >= FIRM:
            plan |= _linear(noise, f"linears.{step}.weight", (AUDIO_CARD, width))
        else:
            plan[f"linears.{step}.weight"] = _planned((AUDIO_CARD, width), lambda step=step: _firm_head(step, width, noise))
    return plan


def _firm_head(step: int, width: int, noise: Noise) -> torch.Tensor:
    codes = torch.arange(AUDIO_CARD)
    if step == 0:
        embedded = noise.directions("depformer_text_emb.weight", (TEXT_CARD + 1, width))[word(codes)]
    else:
        embedded = noise.directions(f"depformer_emb.{step - 1}.weight", (AUDIO_CARD + 1, width))[:AUDIO_CARD]
    # Rolled, so that codebooks are not copies of each other.
    return embedded.roll(1 + step, dims=0) / math.sqrt(width)


def _depth_layers(size: Size, noise: Noise) -> dict[str, Planned]:
    plan: dict[str, Planned] = {}
    width, inner = size.depth_hidden, size.depth_feedforward
    gain = MIXED / math.sqrt(size.depth_layers)
    for layer in range(size.depth_layers):
        base = f"depformer.layers.{layer}"
        plan |= _linear(noise, f"{base}.self_attn.in_proj_weight", (CODEBOOKS * 3 * width, width))
        plan |= _linear(noise, f"{base}.self_attn.out_proj.weight", (CODEBOOKS * width, width), gain)
        for step in range(CODEBOOKS):
            plan |= _linear(noise, f"{base}.gating.{step}.linear_in.weight", (2 * inner, width))
            plan |= _linear(noise, f"{base}.gating.{step}.linear_out.weight", (width, inner), gain)
        plan |= _ones(f"{base}.norm1.alpha", width) | _ones(f"{base}.norm2.alpha", width)
    return plan
