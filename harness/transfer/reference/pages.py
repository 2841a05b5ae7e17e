"""Reading a request's rows out of a paged KV cache, and writing them into another."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.transfer.protocol import KVLayout, KVOrder, KVPayload, LayerKV, Pages


class PagedCache:
    """The paged caches of one layout: where keys and values lie, and which token is which row."""

    def __init__(self, layout: KVLayout) -> None:
        self._layout = layout

    def read(self, kv: Sequence[LayerKV], block_ids: Sequence[int], seq_len: int) -> KVPayload:
        """Copy the first `seq_len` tokens of the blocks, or all their tokens where they hold fewer.

        Returns a key and a value tensor [tokens, heads, head_dim] a layer, which share nothing with `kv`. ValueError: tensors of another
        layout, a block that does not exist, no blocks, or `seq_len` below 1.
        """
        if seq_len < 1:
            raise ValueError(f"seq_len = {seq_len}; a request has at least one token")
        self._check(kv, block_ids)
        count = self._count(block_ids, seq_len)
        rows = [self._rows(layer, block_ids, count) for layer in kv]
        return KVPayload(keys=tuple(both[0] for both in rows), values=tuple(both[1] for both in rows))

    def check_room(self, pages: Pages, tokens: int) -> None:
        """ValueError unless `tokens` tokens fit the block table, and the pages are of this layout, each block named once."""
        self._check(pages.kv, pages.block_ids)
        if len(set(pages.block_ids)) != len(pages.block_ids):
            raise ValueError(f"into: block ids {list(pages.block_ids)} name a block twice")
        room = len(pages.block_ids) * self._layout.block_size
        if tokens > room:
            raise ValueError(f"into: {tokens} tokens for {len(pages.block_ids)} blocks, which hold {room}")

    def write(self, pages: Pages, payload: KVPayload, first_token: int) -> None:
        """Put a payload's rows where tokens `first_token` and later belong. All else stays as it is. Check for room first."""
        for layer, keys, values in zip(pages.kv, payload.keys, payload.values, strict=True):
            for part, rows in zip(self._parts(layer), (keys, values), strict=True):
                self._put(part, pages.block_ids, first_token, rows)

    def _count(self, block_ids: Sequence[int], seq_len: int) -> int:
        """How many tokens are there to be read."""
        return min(seq_len, len(block_ids) * self._layout.block_size)

    def _rows(self, layer: LayerKV, block_ids: Sequence[int], count: int) -> torch.Tensor:
        """One layer's first `count` tokens: [2, count, heads, head_dim]."""
        parts = self._parts(layer)
        table = torch.tensor(list(block_ids), dtype=torch.int64, device=parts[0].device)
        return torch.stack([self._tokens_first(self._pick(part, table)).flatten(0, 1)[:count] for part in parts])

    def _pick(self, part: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """The blocks of the table, copied. As bytes where torch does not index the dtype (float8 on some devices)."""
        if part.dtype.itemsize == 1:
            return part.view(torch.uint8).index_select(0, table).view(part.dtype)
        return part.index_select(0, table)

    def _put(self, part: torch.Tensor, block_ids: Sequence[int], first_token: int, rows: torch.Tensor) -> None:
        at = torch.arange(first_token, first_token + len(rows), device=part.device)
        table = torch.tensor(list(block_ids), dtype=torch.int64, device=part.device)
        size = self._layout.block_size
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[part.dtype.itemsize]
        self._tokens_first(part.view(bits))[table[at // size], at % size] = rows.to(part.device).view(bits)

    def _parts(self, layer: LayerKV) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values, each [blocks, *block]."""
        return (layer[0], layer[1])

    def _tokens_first(self, blocks: torch.Tensor) -> torch.Tensor:
        """The blocks as [blocks, block_size, heads, head_dim], without a copy."""
        return blocks if self._layout.order is KVOrder.NHD else blocks.transpose(1, 2)

    def _check(self, kv: Sequence[LayerKV], block_ids: Sequence[int]) -> None:
        if len(kv) != self._layout.layers:
            raise ValueError(f"{len(kv)} KV tensors for a layout of {self._layout.layers} layers")
        for number, layer in enumerate(kv):
            self._check_layer(number, layer)
            self._check_blocks(number, self._parts(layer)[0].shape[0], block_ids)

    def _check_layer(self, number: int, layer: LayerKV) -> None:
        want = self._layout
        if isinstance(layer, torch.Tensor) is not want.packed:
            got = "one tensor" if isinstance(layer, torch.Tensor) else f"a {type(layer).__name__}"
            raise ValueError(f"layer {number}: KV in {got}; the layout says packed = {want.packed}")
        if want.packed:
            shape: tuple[object, ...] = (2, "blocks", *want.block_shape)
            fits = layer.dim() == 5 and (layer.shape[0], *layer.shape[2:]) == (2, *want.block_shape)
        else:
            shape = ("blocks", *want.block_shape)
            fits = len(layer) == 2 and all(part.dim() == 4 and tuple(part.shape[1:]) == want.block_shape for part in layer)
            fits = fits and layer[0].shape == layer[1].shape
        parts = [layer] if want.packed else list(layer)
        if not fits:
            raise ValueError(f"layer {number}: KV of shape {' and '.join(str(list(p.shape)) for p in parts)}, expected {list(shape)}")
        if any(part.dtype != want.dtype for part in parts):
            raise ValueError(f"layer {number}: KV of {', '.join(str(p.dtype) for p in parts)}, expected {want.dtype}")

    def _check_blocks(self, number: int, blocks: int, block_ids: Sequence[int]) -> None:
        if not block_ids:
            raise ValueError("the block table is empty")
        outside = [block for block in block_ids if not 0 <= block < blocks]
        if outside:
            raise ValueError(f"layer {number}: block ids {outside} outside a cache of {blocks} blocks")
