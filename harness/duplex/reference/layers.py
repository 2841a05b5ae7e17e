"""A causal transformer with a window: one tick at a time over rings, or a whole sequence at once."""

from __future__ import annotations

import functools
import math

import torch
from torch import nn
from torch.nn import functional as F

from harness.duplex.reference.config import TransformerConfig
from harness.duplex.reference.ring import RingKV, Visit

EPSILON = 1e-5
ROPE_BASE = 10_000.0


def weight(*shape: int) -> nn.Parameter:
    """A parameter of the default device and type, filled by `model.initialize`."""
    return nn.Parameter(torch.empty(shape))


class RMSNorm(nn.Module):
    """Scale to a root mean square of 1, over the last dimension."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = weight(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f[..., size] -> f[..., size]."""
        return F.rms_norm(x, x.shape[-1:], self.scale, EPSILON)


@functools.cache
def _frequencies(size: int, device: torch.device) -> torch.Tensor:
    return torch.exp(torch.arange(size // 2, device=device, dtype=torch.float32) * (-2 * math.log(ROPE_BASE) / size))


def rope_angles(positions: torch.Tensor, size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, each dtype[*positions, size / 2]; the angles are float32 whatever the type, so that late positions stay apart."""
    angles = positions[..., None] * _frequencies(size, positions.device)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of f[..., heads, size]: the first half of a head is paired with the second."""
    first, second = x.chunk(2, -1)
    cosines, sines = cosines.unsqueeze(-2), sines.unsqueeze(-2)
    return torch.cat((first * cosines - second * sines, first * sines + second * cosines), -1)


def gated(x: torch.Tensor) -> torch.Tensor:
    """SwiGLU: f[..., 2 * n] -> f[..., n]."""
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


class Layer(nn.Module):
    """Attention and a gated feed-forward, each behind a norm, each added to what came in."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = RMSNorm(config.hidden)
        self.qkv = weight(3 * config.hidden, config.hidden)
        self.out = weight(config.hidden, config.hidden)
        self.norm_ff = RMSNorm(config.hidden)
        self.ff_in = weight(2 * config.feedforward, config.hidden)
        self.ff_out = weight(config.hidden, config.feedforward)

    def heads_of(self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys (both rotated) and values of f[..., hidden], each f[..., heads, head size]."""
        qkv = F.linear(self.norm(x), self.qkv).unflatten(-1, (3 * self.heads, -1))
        turned = rotate(qkv[..., : 2 * self.heads, :], *angles)
        return turned[..., : self.heads, :], turned[..., self.heads :, :], qkv[..., 2 * self.heads :, :]

    def add(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The layer's output, of its input and what its heads attended to, both f[..., hidden]."""
        x = x + F.linear(attended, self.out)
        return x + F.linear(gated(F.linear(self.norm_ff(x), self.ff_in)), self.ff_out)

    def step(self, x: torch.Tensor, index: int, ring: RingKV, visit: Visit, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """One tick: f[R, hidden] -> f[R, hidden]."""
        query, key, value = self.heads_of(x, angles)
        keys, values = ring.write(index, visit.cells, key, value)
        attended = F.scaled_dot_product_attention(query.unsqueeze(2), keys, values, attn_mask=visit.mask)
        return self.add(x, attended.flatten(1))

    def sequence(self, x: torch.Tensor, mask: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """All ticks: f[B, T, hidden] -> f[B, T, hidden]; mask bool[T, T]."""
        query, key, value = (part.transpose(1, 2) for part in self.heads_of(x, angles))
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.add(x, attended.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Layers that see the last `context` ticks, their own among them."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden)

    def step(self, x: torch.Tensor, ring: RingKV, active: torch.Tensor) -> torch.Tensor:
        """One tick of f[R, hidden], each row at its own position; active bool[R]: other rows change nothing, and their result is void."""
        visit = ring.visit(active)
        angles = rope_angles(visit.positions, self.config.hidden // self.config.heads, x.dtype)
        for index, layer in enumerate(self.layers):
            x = layer.step(x, index, ring, visit, angles)
        ring.advance(active)
        return self.norm(x)

    def sequence(self, x: torch.Tensor) -> torch.Tensor:
        """T ticks of f[B, T, hidden] from position 0, without a ring."""
        positions = torch.arange(x.shape[1], device=x.device)
        age = positions[:, None] - positions
        mask = (age >= 0) & (age < self.config.context)
        angles = rope_angles(positions, self.config.hidden // self.config.heads, x.dtype)
        for layer in self.layers:
            x = layer.sequence(x, mask, angles)
        return self.norm(x)
