"""Wrong answers about layouts, heads and the receiver's own pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.transfer.protocol import KVPayload, Pages
from harness.transfer.reference.heads import HeadPlan, Piece
from harness.transfer.wrong_inputs.register import wrong_input


@wrong_input("transfer/split-keys-twice", "pages:PagedCache._parts", "transfer.layout.split", "transfer.layout.hnd_split")
def split_keys_twice(original: Any, cache: Any, layer: Any) -> Any:
    """Of a cache with a tensor each for keys and values, the keys are read as both."""
    return original(cache, layer) if isinstance(layer, torch.Tensor) else (layer[0], layer[0])


@wrong_input("transfer/hnd-as-nhd", "pages:PagedCache._tokens_first", "transfer.layout.hnd", "transfer.layout.hnd_split")
def hnd_as_nhd(original: Any, cache: Any, blocks: torch.Tensor) -> torch.Tensor:
    """A block's memory is read as tokens before heads, whatever its order."""
    return blocks.contiguous().view(original(cache, blocks).shape)


@wrong_input("transfer/fp8-rounded", "pages:PagedCache._rows", "transfer.layout.fp8")
def fp8_rounded(original: Any, cache: Any, *where: Any) -> torch.Tensor:
    """float8 goes through bfloat16 and back, which keeps numbers and not the bits of a NaN."""
    rows = original(cache, *where)
    return torch.nan_to_num(rows.to(torch.bfloat16)).to(rows.dtype) if rows.dtype.itemsize == 1 else rows


@wrong_input("transfer/shape-unchecked", "codec:PayloadCodec._check_layout", "transfer.layout.other_shape")
def shape_unchecked(original: Any, codec: Any, tensors: Any, heads: int) -> None:
    """What a payload says of its shape is not held against this stage's."""


@wrong_input(
    "transfer/heads-of-rank-zero-on-cards",
    "heads:HeadPlan.received_by",
    "transfer.cards.split",
    "transfer.cards.at_once",
    "transfer.cards.four_at_once",
)
@wrong_input("transfer/heads-of-rank-zero", "heads:HeadPlan.received_by", "transfer.tp.split", "transfer.tp.uneven", "transfer.tp.equal")
def heads_of_rank_zero(original: Any, plan: HeadPlan, target_rank: int) -> list[Piece]:
    """Every receiver rank is given the first heads of its senders."""
    return [replace(piece, source_head=0, source_rank=0) for piece in original(plan, target_rank)]


@wrong_input("transfer/copies-joined", "heads:HeadPlan._holder", "transfer.tp.replicated")
def copies_joined(original: Any, plan: HeadPlan, head: int, target_rank: int) -> int:
    """Sender ranks are asked in their order, as if each held a head of its own."""
    return head if plan._source_tp > plan._total else original(plan, head, target_rank)


@wrong_input("transfer/first-shard-will-do", "shards:Gather.look", "transfer.tp.missing_shard")
def first_shard_will_do(original: Any, gather: Any) -> Any:
    """Shards that have not come are made up from those that have."""
    original(gather)
    came = list(gather._found.values())
    return [replace(came[0], shard=replace(came[0].shard)) for _ in gather._shards] if came else None


@wrong_input("transfer/skip-ignored", "manager:TransferManager._skip", "transfer.pages.skip")
def skip_ignored(original: Any, manager: Any, request_id: str, skip_tokens: int) -> int:
    """The whole sequence is delivered, whatever the receiver has."""
    return 0


@wrong_input("transfer/skip-clamped", "receiver:Receiver._hit", "transfer.pages.skip_too_much")
def skip_clamped(original: Any, receiver: Any, order: Any, payload: Any, size: int, metadata: Any) -> Any:
    """A receiver that skips more than there is is given an empty hit."""
    return original(receiver, replace(order, skip=min(order.skip, len(payload.keys[0]))), payload, size, metadata)


@wrong_input("transfer/into-first-blocks", "pages:PagedCache.write", "transfer.pages.into")
def into_first_blocks(original: Any, cache: Any, pages: Pages, payload: KVPayload, first_token: int) -> None:
    """Rows are put into the first blocks, not into those of the block table."""
    original(cache, Pages(pages.kv, range(len(pages.block_ids))), payload, first_token)


@wrong_input("transfer/pages-cleared", "receiver:Receiver.fetch", "transfer.pages.untouched_without_hit")
def pages_cleared(original: Any, receiver: Any, order: Any, *how: Any) -> Any:
    """The receiver's pages are cleared before it is known whether anything comes."""
    for layer in order.into.kv if order.into else ():
        for part in layer:
            part[list(order.into.block_ids)] = 0
    return original(receiver, order, *how)


@wrong_input("transfer/room-unchecked", "pages:PagedCache.check_room", "transfer.pages.no_room")
def room_unchecked(original: Any, cache: Any, pages: Pages, tokens: int) -> None:
    """Whether the tokens fit is found out by writing them."""


@wrong_input("transfer/layout-unchecked", "pages:PagedCache._check_layer", "transfer.send.other_layout")
def layout_unchecked(original: Any, cache: Any, number: int, layer: Any) -> None:
    """A sender's cache is taken for one of the manager's layout."""


@wrong_input("transfer/blocks-unchecked", "pages:PagedCache._check_blocks", "transfer.send.block_outside")
def blocks_unchecked(original: Any, cache: Any, number: int, blocks: int, block_ids: Any) -> None:
    """Blocks outside the cache are left out of the table."""
    block_ids[:] = [block for block in block_ids if 0 <= block < blocks] or [0]
