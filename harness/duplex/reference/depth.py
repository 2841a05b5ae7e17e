"""The depth transformer: within one tick, codebook after codebook, with weights of its own for each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from harness.duplex.reference.config import ModelConfig, TransformerConfig
from harness.duplex.reference.layers import Bare, Layer, Norm, weight
from harness.duplex.reference.room import FinishRoom


class Place(NamedTuple):
    """Where a layer keeps one step of a tick; views of one buffer."""

    qkv: torch.Tensor
    """f[R, 3 * hidden]: what the layer's projection writes."""
    query: torch.Tensor
    """f[R, heads, 1, head size]: its first part."""
    keys: torch.Tensor
    """f[R, heads, step + 1, head size]: of this step and those before."""
    values: torch.Tensor
    first: torch.Tensor | None
    """f[R, hidden]: the values at the first step, which are what it attends to."""
    finish: FinishRoom


class DepthScratch:
    """Keys and values over the steps of one tick. Every step is written before it is read, so nothing here outlives a tick."""

    def __init__(self, config: TransformerConfig, rows: int, device: torch.device | str, dtype: torch.dtype) -> None:
        shape = (config.layers, config.context, rows, 3, config.heads, config.hidden // config.heads)
        self.buffer = torch.zeros(shape, device=device, dtype=dtype)
        self._finish = FinishRoom.make(config, rows, device, dtype)
        self.entered = torch.zeros(rows, config.context * config.hidden, device=device, dtype=dtype)
        self.parts = self.entered.split(config.hidden, -1)
        self.places = [[self._place(layer, step) for layer in self.buffer] for step in range(config.context)]

    def poison(self) -> None:
        """Spoil what may not be read before it is written."""
        self.buffer.fill_(torch.nan)
        self.entered.fill_(torch.nan)
        self._finish.poison()

    def _place(self, layer: torch.Tensor, step: int) -> Place:
        _, keys, values = layer[: step + 1].permute(2, 1, 3, 0, 4)
        first = None if step else values.flatten(1)
        return Place(layer[step].flatten(1), layer[step, :, 0].unsqueeze(2), keys, values, first, self._finish)


class DepthStep(Bare):
    """What is one codebook's own: the embedding of the token of the row before, the layers, the head."""

    def __init__(self, config: TransformerConfig, card_before: int, card: int) -> None:
        super().__init__()
        self.embedding = weight(card_before, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden)
        self.head = weight(config.hidden, card)

    def forward(self, part: torch.Tensor, before: torch.Tensor, places: list[Place]) -> torch.Tensor:
        """Logits f[R, card], of the temporal state's part f[R, hidden] and the tokens i64[R] of the row before."""
        x = torch.index_select(self.embedding, 0, before, out=places[0].finish.state).add_(part)
        for layer, place in zip(self.layers, places, strict=True):
            layer.project(x, out=place.qkv)
            attended = place.first
            if attended is None:
                attended = F.scaled_dot_product_attention(place.query, place.keys, place.values).flatten(1)
            x = layer.finish(x, attended, place.finish)
        return torch.mm(self.norm(x), self.head)


class DepthTransformer(Bare):
    """From the temporal state to the logits of rows 1 .. `depth.context`, each after the token of the row before, the text's first.

    There are no positions: that the weights differ from step to step tells the steps apart.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.hidden, self.heads = config.depth.hidden, config.depth.heads
        cards = (config.text_card + 1, *[config.audio_card + 1] * (config.depth.context - 1))
        self.steps = nn.ModuleList(DepthStep(config.depth, card, config.audio_card) for card in cards)
        self.enter = weight(config.temporal.hidden, len(cards) * self.hidden)

    def parts(self, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What each step has of the temporal state f[N, temporal hidden]: f[N, hidden] a step."""
        return torch.mm(state, self.enter).split(self.hidden, -1)

    def enter_step(self, state: torch.Tensor, scratch: DepthScratch) -> tuple[torch.Tensor, ...]:
        """`parts`, in the scratch."""
        torch.mm(state, self.enter, out=scratch.entered)
        return scratch.parts

    def sequence(self, state: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Teacher-forced: temporal states f[N, temporal hidden], tokens i64[N, steps] of the rows before; logits f[N, steps, card]."""
        inputs = zip(self.steps, self.parts(state), tokens.unbind(1), strict=True)
        steps = [part + F.embedding(token, step.embedding) for step, part, token in inputs]
        for layers in zip(*(step.layers for step in self.steps), strict=True):
            qkv = torch.stack([layer.project(x) for layer, x in zip(layers, steps, strict=True)], 1)
            query, key, value = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2).unbind(1)
            steps = [layer.finish(x, heard) for layer, x, heard in zip(layers, steps, attended, strict=True)]
        return torch.stack([torch.mm(step.norm(x), step.head) for step, x in zip(self.steps, steps, strict=True)], 1)
