"""Reading a request's rows out of a paged KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.transfer.protocol import KVLayout, KVPayload


class PageReader:
    """Gathers the tokens of one request, in block-table order, from caches of one layout."""

    def __init__(self, layout: KVLayout) -> None:
        self._layout = layout

    def read(self, kv: Sequence[torch.Tensor], block_ids: Sequence[int], seq_len: int) -> KVPayload:
        """Copy the first `seq_len` tokens of the blocks, or all their tokens where they hold fewer.

        `kv`: one tensor a layer, [2, blocks, block_size, heads, head_dim], keys first. Returns a key and a value tensor
        [tokens, heads, head_dim] a layer, which share nothing with `kv`. ValueError: tensors of another layout, a block that
        does not exist, no blocks, or `seq_len` below 1.
        """
        if seq_len < 1:
            raise ValueError(f"seq_len = {seq_len}; a request has at least one token")
        if len(kv) != self._layout.layers:
            raise ValueError(f"{len(kv)} KV tensors for a layout of {self._layout.layers} layers")
        for layer, pages in enumerate(kv):
            self._check_layer(layer, pages)
            self._check_blocks(layer, pages.shape[1], block_ids)
        rows = [self._rows(pages, block_ids, self._count(block_ids, seq_len)) for pages in kv]
        return KVPayload(keys=tuple(both[0] for both in rows), values=tuple(both[1] for both in rows))

    def _count(self, block_ids: Sequence[int], seq_len: int) -> int:
        """How many tokens are there to be read."""
        return min(seq_len, len(block_ids) * self._layout.block_size)

    def _rows(self, pages: torch.Tensor, block_ids: Sequence[int], count: int) -> torch.Tensor:
        """One layer's first `count` tokens: [2, count, heads, head_dim]."""
        table = torch.tensor(list(block_ids), dtype=torch.int64, device=pages.device)
        return pages.index_select(1, table).flatten(1, 2)[:, :count]

    def _check_layer(self, layer: int, pages: torch.Tensor) -> None:
        want = self._layout
        shape = (2, "blocks", want.block_size, want.heads, want.head_dim)
        if pages.dim() != 5 or (pages.shape[0], *pages.shape[2:]) != (2, *shape[2:]):
            raise ValueError(f"layer {layer}: KV of shape {list(pages.shape)}, expected {list(shape)}")
        if pages.dtype != want.dtype:
            raise ValueError(f"layer {layer}: KV of {pages.dtype}, expected {want.dtype}")

    def _check_blocks(self, layer: int, blocks: int, block_ids: Sequence[int]) -> None:
        if not block_ids:
            raise ValueError("the block table is empty")
        outside = [block for block in block_ids if not 0 <= block < blocks]
        if outside:
            raise ValueError(f"layer {layer}: block ids {outside} outside a cache of {blocks} blocks")
