"""The operations of a decode step, in loops like the engines': what one step gives is part of what the next one takes.

Calls on the very same tensors are no probe: cuDNN 9.19's attention with one query and a boolean mask gives the same bits for 200 calls on
the same tensors, and other bits in a loop that writes one key a step, once more than 64 keys are visible (seen on an H200). Nor are
keys among which one wins every query: a sum with one large term is the same in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BATCHES = (1, 2, 4, 8, 16, 32)
"""Rows of a decode step: one a session."""
RING_BATCHES = (1, 4, 32)
"""Of attention, where a row has keys of its own."""
RING_STEPS = 140
"""Steps of an attention loop: twice as many keys become visible as it took until cuDNN's kernel was found out."""
STEPS = 24
"""Steps of the other loops."""
_DRAWN = 8
"""Steps of the other loops with inputs of their own; then they come again, but what the last step gave does not."""
_FLAT = 0.1
"""Of normal draws, for attention: scores are so near to one another that each query weighs all the keys it sees."""

BACKENDS = {
    "default": None,
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
"""Attention backends by the names that the engines' option `sdpa` has for them; `default` lets torch choose."""


@dataclass(frozen=True)
class Sizes:
    """Of the probes.

    `layers`: rings that a step goes through; `ring`: keys in each; `hidden`, `feedforward`: of the matrix products; `channels`, `samples`:
    of a codec's convolutions; `attention`: the type of keys and values.
    """

    layers: int
    heads: int
    head_dim: int
    ring: int
    hidden: int
    feedforward: int
    channels: int
    samples: int
    attention: torch.dtype


CARD = Sizes(16, 32, 128, 3000, 4096, 11264, 64, 480, torch.bfloat16)
"""Half of a 7B model's layers: cuDNN's kernel gives other bits in one call of some hundreds, so that two layers would not show it."""
HOST = Sizes(1, 4, 32, 128, 256, 704, 16, 120, torch.float32)
"""Small enough for a laptop; the loop goes around the ring."""


@dataclass(frozen=True)
class Probe:
    """One operation done in one way. `run(batch)` is the whole loop from its start, and gives each step's output, [batch, ...]."""

    operation: str
    way: str
    run: Callable[[int], list[torch.Tensor]]
    batches: tuple[int, ...] = BATCHES


def probes(device: torch.device) -> Iterator[Probe]:
    """Every probe of the device: attention, matrix products, convolutions."""
    card = device.type == "cuda"
    sizes = CARD if card else HOST
    for way, backend in BACKENDS.items():
        yield Probe("attention", way, _attention(sizes, device, backend), RING_BATCHES)
    for way, dtype in (("float32", torch.float32), ("tf32", torch.float32), ("bfloat16", torch.bfloat16)):
        if card or way != "tf32":
            yield Probe("matrix product", way, _product(sizes, device, dtype, way == "tf32"))
        if card or way == "float32":
            yield Probe("convolution", way, _convolution(sizes, device, dtype, way == "tf32"))


def _attention(sizes: Sizes, device: torch.device, backend: SDPBackend | None) -> Callable[[int], list[torch.Tensor]]:
    """One query a row over a ring of keys that is written one a step, with a boolean mask of what is written."""

    def run(batch: int) -> list[torch.Tensor]:
        said = (_draw((RING_STEPS, 3, BATCHES[-1], sizes.heads, sizes.head_dim), device, sizes.attention) * _FLAT)[:, :, :batch]
        rings = torch.zeros(sizes.layers, 2, batch, sizes.heads, sizes.ring, sizes.head_dim, dtype=sizes.attention, device=device)
        places = torch.arange(sizes.ring, device=device)
        x, given = torch.zeros_like(said[0, 0]), []
        forced: AbstractContextManager = nullcontext() if backend is None else sdpa_kernel(backend)
        with forced:
            for step in range(RING_STEPS):
                visible = (places <= step).expand(batch, 1, 1, sizes.ring)
                for keys, values in rings:
                    query, keys[:, :, step % sizes.ring], values[:, :, step % sizes.ring] = said[step] + x
                    x = F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=visible)[:, :, 0]
                given.append(x)
        return given

    return run


def _product(sizes: Sizes, device: torch.device, dtype: torch.dtype, tf32: bool) -> Callable[[int], list[torch.Tensor]]:
    """A feed-forward layer of a few rows: `batch` x hidden x feedforward, and back."""

    def run(batch: int) -> list[torch.Tensor]:
        heard = _draw((_DRAWN, BATCHES[-1], sizes.hidden), device, dtype)[:, :batch]
        up = _draw((sizes.hidden, sizes.feedforward), device, dtype) / sizes.hidden**0.5
        down = _draw((sizes.feedforward, sizes.hidden), device, dtype) / sizes.feedforward**0.5
        x, given = torch.zeros_like(heard[0]), []
        with _precision(tf32):
            for step in range(STEPS):
                x = torch.tanh((x + heard[step % _DRAWN]) @ up) @ down
                given.append(x)
        return given

    return run


def _convolution(sizes: Sizes, device: torch.device, dtype: torch.dtype, tf32: bool) -> Callable[[int], list[torch.Tensor]]:
    """A streaming codec's pair: a strided convolution with carried context, and a transposed one whose overlap is carried."""
    stride, channels, samples = 4, sizes.channels, sizes.samples

    def run(batch: int) -> list[torch.Tensor]:
        heard = _draw((_DRAWN, BATCHES[-1], channels, samples), device, dtype)[:, :batch]
        down = _draw((2 * channels, channels, 2 * stride), device, dtype) / (2 * channels * stride) ** 0.5
        up = _draw((2 * channels, channels, 2 * stride), device, dtype) / (4 * channels) ** 0.5
        x, given = torch.zeros_like(heard[0]), []
        before = overlap = torch.zeros_like(x[..., :stride])
        with _precision(tf32):
            for step in range(STEPS):
                frame = torch.tanh(x) + heard[step % _DRAWN]
                coded = torch.tanh(F.conv1d(torch.cat([before, frame], -1), down, stride=stride))
                wide = F.conv_transpose1d(coded, up, stride=stride)
                x = torch.cat([wide[..., :stride] + overlap, wide[..., stride:samples]], -1)
                before, overlap = frame[..., -stride:], wide[..., samples:]
                given.append(x)
        return given

    return run


def _draw(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Normal draws, the same each time; the generators of the process are left alone."""
    generator = torch.Generator(device).manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device=device).to(dtype)


@contextmanager
def _precision(tf32: bool) -> Iterator[None]:
    """Float32 products with or without tf32 inside the block."""
    owners = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [owner.allow_tf32 for owner in owners]
    try:
        for owner in owners:
            owner.allow_tf32 = tf32
        yield
    finally:
        for owner, was in zip(owners, before, strict=True):
            owner.allow_tf32 = was
