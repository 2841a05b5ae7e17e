"""The keys and values of one forward, in the pages of its request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from harness.tier.reference.config import GROUPS, NetworkConfig
from harness.tier.reference.pool import Pool
from harness.tier.reference.streams import Event, Stream


class PagedCache(Cache):
    """What transformers' layers see as their cache for positions start .. start + length of one request.

    `tables`, by group, are i64[pages] of `pool`, whose first holds positions 0 .. page - 1. A layer waits for its group's piece of each of
    `loads` before it touches a page. What it is given goes to the pages; what it sees is read back from them: positions from the first
    that it attends to up to the end, no page before that, nothing behind the end. `sum` f32[] is that of all that was written: finite
    if each number of it is.
    """

    def __init__(
        self,
        config: NetworkConfig,
        pool: Pool,
        tables: Mapping[str, torch.Tensor],
        start: int,
        length: int,
        loads: Sequence[Mapping[str, Sequence[Event]]],
        stream: Stream,
    ) -> None:
        super().__init__(layers=[])
        self.config, self.pool, self.tables, self.loads, self.stream = config, pool, tables, loads, stream
        self.start, self.end = start, start + length
        self.sum = torch.zeros((), device=pool.kept.device)
        self._places = self.places(torch.arange(start, self.end, device=pool.kept.device))

    def places(self, positions: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Where i64[n] positions are kept, by group: i64[n] pages and i64[n] tokens in them."""
        page = self.pool.page
        return {group: (self.tables[group][positions // page], positions % page) for group in GROUPS}

    def seen_pages(self, group: str, first: int) -> torch.Tensor:
        """i64[m]: the pages of a group that hold positions from `first` to the end."""
        return self.tables[group][first // self.pool.page : -(-self.end // self.pool.page)]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.start

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Of f[1, KV heads, length, head dim] of a layer; gives f[1, KV heads, seen, head dim], as transformers' DynamicCache does."""
        self.wait_for_layer(layer_idx)
        self.write(layer_idx, key_states[0].transpose(0, 1), value_states[0].transpose(0, 1))
        return self.gather(layer_idx)

    def wait_for_layer(self, layer: int) -> None:
        """Let the stream wait until that layer of all pages of its group that come from the host is there."""
        piece = self.config.row(layer) * self.config.pieces // self.config.layers_per_group
        for load in self.loads:
            for event in load.get(self.config.group(layer), ())[piece : piece + 1]:
                self.stream.wait(event)

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put f[length, KV heads, head dim] into the pages."""
        self.pool.write(self.config.row(layer), self._places[self.config.group(layer)], keys, values)
        self.sum = self.sum + keys.sum(dtype=torch.float32) + values.sum(dtype=torch.float32)

    def gather(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the layer attends to, twice f[1, KV heads, seen, head dim]."""
        group = self.config.group(layer)
        first, page = self.config.first(group, self.start), self.pool.page
        pages = self.seen_pages(group, first)
        skipped = first - first % page
        # Sliced, not masked: attention multiplies what is masked by 0, and 0 * NaN is NaN.
        seen = (part[first - skipped : self.end - skipped] for part in self.pool.gather(self.config.row(layer), pages))
        keys, values = (part.transpose(0, 1)[None] for part in seen)
        return keys, values
