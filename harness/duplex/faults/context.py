"""Faults of what a row remembers: rings of keys and values, and the context of its convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.duplex.faults.register import catalogued


@catalogued(
    "recycle-kv-visible",
    "ring:RingKV.reset",
    claims=["duplex.replay.exact", "duplex.replay.predecessor", "duplex.replay.after_wrap"],
    source="vllm-omni personaplex/runtime.py recycle_slot (code masks the row; inferred); waybarrios/vllm-mlx#385",
)
def recycle_kv_visible(original: Any, ring: Any, row: int) -> None:
    """A new occupant starts at position 0, and still sees the keys and values of the former one."""
    ring.positions[row].zero_()


@catalogued(
    "reset-keeps-length",
    "ring:RingKV.reset",
    claims=["duplex.replay.exact", "duplex.replay.predecessor", "duplex.replay.join_tick"],
    source="transformers#48809, #48509",
)
def reset_keeps_length(original: Any, ring: Any, row: int) -> None:
    """A reset empties the cells and leaves the position: a new occupant attends to a run of zeros."""
    position, written = int(ring.positions[row]), int(ring.written[row])
    original(ring, row)
    ring.positions[row], ring.written[row] = position, written


@catalogued(
    "shared-ring-offset",
    "ring:RingKV.visit",
    claims=["duplex.replay.exact", "duplex.pause.talking", "duplex.history.one_pass"],
    source="vllm-omni#7670 (made offsets per row)",
)
def shared_ring_offset(original: Any, ring: Any, active: torch.Tensor) -> Any:
    """All rows write, and are turned, at the position of the one that is farthest."""
    ring.positions.fill_(ring.positions.max())
    return original(ring, active)


@catalogued(
    "idle-row-advances",
    "ring:RingKV.advance",
    claims=["duplex.pause.talking", "duplex.pause.after_wrap"],
    source="vllm-omni#7670 (active mask)",
)
def idle_row_advances(original: Any, ring: Any, active: torch.Tensor) -> None:
    """A row that takes no part in a tick goes on all the same."""
    original(ring, torch.ones_like(active))


@catalogued(
    "ring-wrap-wrong",
    "ring:visible",
    claims=["duplex.history.one_pass_wrapped"],
    source="kyutai-labs/moshi#148",
)
def ring_wrap_wrong(original: Any, written: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Once the ring has wrapped, the oldest tick of the window is not seen any more."""
    oldest = cells == (written[:, None] + 1) % len(cells)
    return original(written, cells) & ~(oldest & (written[:, None] >= len(cells)))


@catalogued(
    "window-not-enforced",
    "ring:RingKV.__init__",
    claims=["duplex.history.one_pass_wrapped"],
    source="transformers#43971 (Mimi: a context of 250 steps)",
)
def window_not_enforced(original: Any, ring: Any, config: Any, *where: Any) -> None:
    """A stream attends to twice the configured window."""
    original(ring, replace(config, context=2 * config.context), *where)


@catalogued(
    "conv-carry-survives",
    "codec:CodecRows.reset",
    claims=["duplex.replay.exact", "duplex.replay.predecessor"],
    source="kyutai-labs/moshi#417 (issue #407)",
)
def conv_carry_survives(original: Any, rows: Any, row: int) -> None:
    """What the convolutions carry is not cleared for a new occupant."""
    rows.ring.reset(row)


@catalogued(
    "conv-carry-dropped",
    "codec:keep",
    claims=["duplex.history.one_pass"],
    source="0xShug0/audio.cpp#622, #623",
)
def conv_carry_dropped(original: Any, carries: Any, after: Any, active: torch.Tensor) -> None:
    """Every frame is heard and spoken as if nothing had come before it."""


@catalogued(
    "batch-size-numerics",
    "codec:Codec._decode",
    claims=["duplex.parity.batch"],
    source="sglang-omni#749 (review: 41 of 300 codes), pegainfer#414, batch_invariant_ops#6",
)
def batch_size_numerics(original: Any, codec: Any, tile: Any, codes: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
    """The entries of a frame's codebooks are added up from the other end where more than one row takes part."""
    if int(active.sum()) < 2:
        return original(codec, tile, codes, active)
    books = codec.quantizer.books
    try:
        codec.quantizer.books = torch.nn.Parameter(books.flip(0), requires_grad=False)
        return original(codec, tile, codes.flip(-1), active)
    finally:
        codec.quantizer.books = books


@catalogued(
    "nan-row-spreads",
    "ring:RingKV.reset",
    claims=["duplex.rows.poisoned"],
    source="local-inference-lab/vllm#621, nod-ai/amd-shark-ai#665",
)
def nan_row_spreads(original: Any, ring: Any, row: int) -> None:
    """A row's cells are hidden and not cleared for a new occupant: 0 * NaN is NaN."""
    ring.positions[row].zero_()
    ring.written[row].zero_()
