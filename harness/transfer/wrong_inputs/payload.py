"""Wrong bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.transfer.protocol import Delivery, KVPayload
from harness.transfer.wrong_inputs.register import wrong_input


@wrong_input("transfer/last-token-lost", "pages:PagedCache._count", "transfer.payload.bits")
def last_token_lost(original: Any, pages: Any, block_ids: Any, seq_len: int) -> int:
    """The last token is not sent."""
    return original(pages, block_ids, seq_len) - 1


@wrong_input("transfer/foreground-swaps", "manager:TransferManager.receive", "transfer.payload.received_bits")
def foreground_swaps(original: Any, manager: Any, *call: Any, **how: Any) -> Delivery:
    """The foreground path exchanges keys and values."""
    delivery = original(manager, *call, **how)
    return replace(delivery, payload=KVPayload(delivery.payload.values, delivery.payload.keys)) if delivery.payload else delivery


@wrong_input("transfer/blocks-sorted", "pages:PagedCache._rows", "transfer.payload.block_table")
def blocks_sorted(original: Any, pages: Any, kv: Any, block_ids: Any, count: int) -> Any:
    """Blocks are read in ascending order, not in the block table's."""
    return original(pages, kv, sorted(block_ids), count)


@wrong_input("transfer/nan-scrubbed", "pages:PagedCache._rows", "transfer.payload.any_bits")
def nan_scrubbed(original: Any, pages: Any, kv: torch.Tensor, block_ids: Any, count: int) -> torch.Tensor:
    """What is not finite is replaced on its way."""
    rows = original(pages, kv, block_ids, count)
    return torch.nan_to_num(rows.float()).to(rows.dtype)


@wrong_input("transfer/long-ones-cut", "pages:PagedCache._count", "transfer.payload.sizes")
def long_ones_cut(original: Any, pages: Any, block_ids: Any, seq_len: int) -> int:
    """Tokens behind the 64th are not sent."""
    return min(original(pages, block_ids, seq_len), 64)


@wrong_input("transfer/one-receive-buffer", "codec:PayloadCodec._payload", "transfer.payload.kept")
def one_receive_buffer(original: Any, codec: Any, ordered: Any) -> KVPayload:
    """Every payload is delivered in the same buffers, over the one before."""
    payload = original(codec, ordered)
    held = vars(codec).setdefault("held", payload)
    for ours, theirs in zip(held.keys + held.values, payload.keys + payload.values, strict=True):
        ours.copy_(theirs)
    return held


@wrong_input("transfer/pages-freed", "manager:TransferManager.send", "transfer.payload.pages_untouched")
def pages_freed(original: Any, manager: Any, request_id: str, kv: Any, block_ids: Any, seq_len: int, **how: Any) -> None:
    """The sender's blocks are cleared once they are sent."""
    original(manager, request_id, kv, block_ids, seq_len, **how)
    for pages in kv:
        pages[:, block_ids] = 0
