"""Bytes read along the wrong axis, or in the wrong order."""

from __future__ import annotations

from typing import Any

import torch

from harness.transfer.faults.register import catalogued
from harness.transfer.protocol import KVOrder, KVPayload


@catalogued(
    "packed-layout-misread",
    "pages:PagedCache._parts",
    claims=["transfer.layout.square"],
    source="LMCache#4467",
)
def packed_layout_misread(original: Any, cache: Any, layer: Any) -> Any:
    """A packed cache that could be of either layout is read with blocks before keys and values."""
    if isinstance(layer, torch.Tensor) and layer.shape[:2] == (2, 2):
        return layer[:, 0], layer[:, 1]
    return original(cache, layer)


@catalogued(
    "hetero-tp-layout",
    "codec:PayloadCodec._sliced",
    claims=["transfer.tp.hnd"],
    source="vllm#37940 (#37703, #37333)",
)
def hetero_tp_layout(original: Any, codec: Any, payload: KVPayload, piece: Any) -> KVPayload:
    """Where heads stand before tokens, the slice of a rank is cut as if they stood behind."""
    layout = codec._layout
    if layout.order is KVOrder.NHD or piece.count == layout.heads:
        return original(codec, payload, piece)

    def other_order(rows: torch.Tensor) -> torch.Tensor:
        return rows.transpose(0, 1).contiguous().view(rows.shape)

    misread = KVPayload(tuple(map(other_order, payload.keys)), tuple(map(other_order, payload.values)))
    return original(codec, misread, piece)


@catalogued(
    "layer-order",
    "codec:PayloadCodec._in_order",
    claims=["transfer.payload.layer_order"],
    source="TensorRT-LLM#16429; name-sort variant local-inference-lab/vllm#454 (bot)",
)
def layer_order(original: Any, codec: Any, tensors: Any) -> list[Any]:
    """Layers are put in the order of their sorted names, where 10 comes before 2."""
    return sorted(tensors, key=lambda item: item.name)
