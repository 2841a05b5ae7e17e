"""A causal transformer with a window: one tick at a time over rings, or a whole sequence at once."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from harness.duplex.reference.config import TransformerConfig
from harness.duplex.reference.ring import RingKV, Visit
from harness.duplex.reference.room import FinishRoom

EPSILON = 1e-5
ROPE_BASE = 10_000.0


def weight(*shape: int) -> nn.Parameter:
    """A parameter of the default device and type, [inputs, outputs], filled by `model.initialize`."""
    return nn.Parameter(torch.empty(shape))


class Bare(nn.Module):
    """A module that finds its parameters and parts as quickly as any attribute, and whose call is its `forward`: none has hooks.

    A tick of a tiny network asks for some hundred of them, and most of what it takes is Python's.
    """

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Parameter | nn.Module):
            vars(self)[name] = value

    def __call__(self, *inputs: Any) -> Any:
        """`forward`."""
        return self.forward(*inputs)


class Norm(Bare):
    """Layer norm without a bias, over the last dimension: one kernel on every device."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.shape = (size,)
        self.scale = weight(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f[..., size] -> f[..., size]."""
        return torch.layer_norm(x, self.shape, self.scale, None, EPSILON)


class Angles(NamedTuple):
    """Of rotary positions: f[*positions, 1, 2, head size / 2] each, the sines of a head's first half with a minus."""

    cosines: torch.Tensor
    sines: torch.Tensor


@functools.cache
def _frequencies(size: int, device: torch.device) -> torch.Tensor:
    falling = torch.exp(torch.arange(size // 2, device=device, dtype=torch.float32) * (-2 * math.log(ROPE_BASE) / size))
    return torch.stack((-falling, falling))


def rope_angles(positions: torch.Tensor, size: int, dtype: torch.dtype) -> Angles:
    """Of positions i64[...]. The angles are float32 whatever the type, so that late positions stay apart."""
    angles = positions.view(*positions.shape, 1, 1, 1) * _frequencies(size, positions.device)
    return Angles(angles.cos().to(dtype), angles.sin_().to(dtype))


def rotate(x: torch.Tensor, angles: Angles) -> torch.Tensor:
    """Rotary position embedding (arXiv 2104.09864) of f[..., heads, size]: the first half of a head is paired with the second."""
    halves = x.unflatten(-1, (2, -1))
    return turn(halves, angles).flatten(-2)


def turn(halves: torch.Tensor, angles: Angles, out: torch.Tensor | None = None) -> torch.Tensor:
    """`rotate` of f[..., heads, 2, size / 2], heads in halves."""
    return torch.addcmul(torch.mul(halves, angles.cosines, out=out), halves.flip(-2), angles.sines, out=out)


class Layer(Bare):
    """Attention and a gated feed-forward (SwiGLU), each behind a norm, each added to what came in.

    What stands between `project` and `finish` is who attends to what: a ring, a sequence, or the steps within a tick.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = Norm(config.hidden)
        self.qkv = weight(config.hidden, 3 * config.hidden)
        self.out = weight(config.hidden, config.hidden)
        self.norm_ff = Norm(config.hidden)
        self.ff_in = weight(config.hidden, 2 * config.feedforward)
        self.ff_out = weight(config.feedforward, config.hidden)

    def project(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Queries, keys and values of f[N, hidden], side by side: f[N, 3 * hidden]."""
        return torch.mm(self.norm(x), self.qkv, out=out)

    def finish(self, x: torch.Tensor, attended: torch.Tensor, room: FinishRoom | None = None) -> torch.Tensor:
        """The layer's output, of its input and what its heads attended to, f[N, hidden] both; in a room it is the room's `state`."""
        if room is None:
            x = torch.addmm(x, attended, self.out)
            gate, value = torch.mm(self.norm_ff(x), self.ff_in).chunk(2, -1)
            return torch.addmm(x, F.silu(gate) * value, self.ff_out)
        x = torch.addmm(x, attended, self.out, out=room.state)
        torch.mm(self.norm_ff(x), self.ff_in, out=room.wide)
        gated = torch.mul(F.silu(room.gate, inplace=True), room.value, out=room.gate)
        return x.addmm_(gated, self.ff_out)

    def step(self, x: torch.Tensor, index: int, ring: RingKV, visit: Visit, angles: Angles) -> torch.Tensor:
        """One tick: f[R, hidden] -> f[R, hidden]."""
        room = ring.room
        self.project(x, out=room.qkv)
        turn(room.halves, angles, room.turned)
        keys, values = ring.write(index, visit.cells, room.key, room.value)
        attended = F.scaled_dot_product_attention(room.query, keys, values, attn_mask=visit.mask)
        return self.finish(x, attended.flatten(1), room.finish)

    def sequence(self, x: torch.Tensor, mask: torch.Tensor, angles: Angles) -> torch.Tensor:
        """All ticks: f[B, T, hidden] -> f[B, T, hidden]; mask bool[T, T]."""
        flat = x.flatten(0, 1)
        qkv = self.project(flat).view(*x.shape[:2], 3 * self.heads, -1)
        query, key = rotate(qkv[..., : 2 * self.heads, :], angles).transpose(1, 2).chunk(2, 1)
        value = qkv[..., 2 * self.heads :, :].transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.finish(flat, attended.transpose(1, 2).reshape(flat.shape)).view(x.shape)


class Transformer(Bare):
    """Layers that see the last `context` ticks, their own among them."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden)

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
