"""The depth transformer: within one tick, codebook after codebook, with weights of its own for each."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from harness.duplex.reference.config import ModelConfig, TransformerConfig
from harness.duplex.reference.layers import EPSILON, gated, weight


def each(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """f[N, steps, n] by the weights of each step f[steps, m, n]: f[N, steps, m]."""
    return torch.bmm(x.transpose(0, 1), weights.transpose(1, 2)).transpose(0, 1)


class DepthLayer(nn.Module):
    """As `layers.Layer`, without positions: that the weights differ from step to step tells them apart."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        steps, hidden = config.context, config.hidden
        self.heads = config.heads
        self.norm_scale = weight(steps, hidden)
        self.qkv = weight(steps, 3 * hidden, hidden)
        self.out = weight(steps, hidden, hidden)
        self.norm_ff_scale = weight(steps, hidden)
        self.ff_in = weight(steps, 2 * config.feedforward, hidden)
        self.ff_out = weight(steps, hidden, config.feedforward)

    def step(self, x: torch.Tensor, step: int, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """f[R, hidden] -> f[R, hidden]; `keys` and `values` f[R, heads, steps, head size] hold the steps before, and take this one."""
        normed = F.rms_norm(x, x.shape[-1:], self.norm_scale[step], EPSILON)
        query, key, value = F.linear(normed, self.qkv[step]).view(x.shape[0], 3, self.heads, -1).unbind(1)
        keys[:, :, step] = key
        values[:, :, step] = value
        attended = F.scaled_dot_product_attention(query.unsqueeze(2), keys[:, :, : step + 1], values[:, :, : step + 1])
        x = x + F.linear(attended.flatten(1), self.out[step])
        normed = F.rms_norm(x, x.shape[-1:], self.norm_ff_scale[step], EPSILON)
        return x + F.linear(gated(F.linear(normed, self.ff_in[step])), self.ff_out[step])

    def sequence(self, x: torch.Tensor) -> torch.Tensor:
        """All steps at once: f[N, steps, hidden] -> f[N, steps, hidden]."""
        normed = F.rms_norm(x, x.shape[-1:], None, EPSILON) * self.norm_scale
        query, key, value = each(normed, self.qkv).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + each(attended.transpose(1, 2).flatten(2), self.out)
        normed = F.rms_norm(x, x.shape[-1:], None, EPSILON) * self.norm_ff_scale
        return x + each(gated(each(normed, self.ff_in)), self.ff_out)


class DepthTransformer(nn.Module):
    """From the temporal state and the token of the row before to the logits of rows 1 .. steps; the row before the first is the text's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config.depth
        self.steps, hidden = config.depth.context, config.depth.hidden
        self.project = weight(self.steps * hidden, config.temporal.hidden)
        self.text_embedding = weight(config.text_card + 1, hidden)
        self.audio_embedding = weight(self.steps - 1, config.audio_card + 1, hidden)
        self.layers = nn.ModuleList(DepthLayer(config.depth) for _ in range(config.depth.layers))
        self.norm_scale = weight(self.steps, hidden)
        self.heads = weight(self.steps, config.audio_card, hidden)

    def begin(self, state: torch.Tensor) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Of the temporal state f[R, hidden] its part in every step, f[R, steps, depth hidden], and empty keys and values of each layer."""
        shape = (state.shape[0], self.config.heads, self.steps, self.config.hidden // self.config.heads)
        return F.linear(state, self.project).unflatten(-1, (self.steps, -1)), [
            (state.new_empty(shape), state.new_empty(shape)) for _ in self.layers
        ]

    def step(self, step: int, parts: torch.Tensor, caches: list[tuple[torch.Tensor, torch.Tensor]], before: torch.Tensor) -> torch.Tensor:
        """Logits f[R, card] of row `step + 1`, of what `begin` gave and the tokens i64[R] of row `step`."""
        x = parts[:, step] + F.embedding(before, self.audio_embedding[step - 1] if step else self.text_embedding)
        for layer, (keys, values) in zip(self.layers, caches, strict=True):
            x = layer.step(x, step, keys, values)
        return F.linear(F.rms_norm(x, x.shape[-1:], self.norm_scale[step], EPSILON), self.heads[step])

    def sequence(self, state: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Teacher-forced: temporal states f[N, hidden] and tokens i64[N, steps] of rows 0 .. steps - 1; logits f[N, steps, card]."""
        parts = F.linear(state, self.project).unflatten(-1, (self.steps, -1))
        card = self.audio_embedding.shape[1]
        offsets = torch.arange(self.steps - 1, device=tokens.device) * card
        audio = F.embedding(tokens[:, 1:] + offsets, self.audio_embedding.flatten(0, 1))
        x = parts + torch.cat((F.embedding(tokens[:, :1], self.text_embedding), audio), 1)
        for layer in self.layers:
            x = layer.sequence(x)
        return each(F.rms_norm(x, x.shape[-1:], None, EPSILON) * self.norm_scale, self.heads)
