"""A KV payload as named tensors on the wire, and back into the layout of the receiving stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.transfer.protocol import Buffer, KVLayout, KVPayload
from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.wire import Wire, WireTensor


class PayloadCodec:
    """Writes and reads the payloads of one layout."""

    def __init__(self, layout: KVLayout) -> None:
        self._layout = layout
        self._wire = Wire()

    def encode(self, request_id: str, payload: KVPayload, seq_len: int) -> bytearray:
        """The bytes of a request's payload: tensors [tokens, heads, head_dim], and `seq_len` as its metadata states it."""
        return self._wire.pack(self._metadata(request_id, seq_len), self._tensors(payload))

    def decode(self, request_id: str, data: Buffer) -> tuple[KVPayload, Mapping[str, Any]]:
        """(payload, metadata). PayloadError where the bytes are damaged, another request's, or of another layout."""
        metadata, tensors = self._wire.unpack(data)
        self._check_owner(request_id, metadata)
        self._check_layout(tensors)
        ordered = self._in_order(tensors)
        return self._payload(ordered), metadata

    def _metadata(self, request_id: str, seq_len: int) -> dict[str, Any]:
        return {"request_id": request_id, "seq_len": seq_len}

    def _tensors(self, payload: KVPayload) -> list[WireTensor]:
        flat: list[WireTensor] = []
        for layer, pair in enumerate(zip(payload.keys, payload.values, strict=True)):
            for part, tensor in zip(("key", "value"), pair, strict=True):
                flat.append(WireTensor(f"layer.{layer}.{part}", len(flat), tensor))
        return flat

    def _in_order(self, tensors: Sequence[WireTensor]) -> list[WireTensor]:
        """Keys and values by turns, layer after layer. By `order`: as names, layer.10 would come before layer.2."""
        return sorted(tensors, key=lambda item: item.order)

    def _payload(self, ordered: Sequence[WireTensor]) -> KVPayload:
        tensors = tuple(item.tensor for item in ordered)
        return KVPayload(keys=tensors[0::2], values=tensors[1::2])

    def _check_owner(self, request_id: str, metadata: Mapping[str, Any]) -> None:
        if metadata.get("request_id") != request_id:
            raise PayloadError(f"payload of request {metadata.get('request_id')!r} came for {request_id!r}")

    def _check_layout(self, tensors: Sequence[WireTensor]) -> None:
        """Every layer's key and value, once, with the heads, head_dim and dtype of this stage and one number of tokens."""
        want = self._layout
        if sorted(item.order for item in tensors) != list(range(2 * want.layers)):
            raise PayloadError(f"payload holds {len(tensors)} tensors, not a key and a value for each of {want.layers} layers")
        for item in tensors:
            if item.tensor.dtype != want.dtype:
                raise PayloadError(f"{item.name} is {item.tensor.dtype}, this stage holds {want.dtype}")
            if tuple(item.tensor.shape[1:]) != (want.heads, want.head_dim):
                raise PayloadError(f"{item.name} has shape {list(item.tensor.shape)}, expected [tokens, {want.heads}, {want.head_dim}]")
        if len({len(item.tensor) for item in tensors}) != 1:
            raise PayloadError(f"layers hold different numbers of tokens: {sorted({len(item.tensor) for item in tensors})}")
