"""A KV payload as named tensors on the wire, and back into the layout of the receiving stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.transfer.protocol import Buffer, KVLayout, KVPayload
from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.heads import Piece
from harness.transfer.reference.wire import Land, Wire, WireTensor


class PayloadCodec:
    """Writes and reads the payloads of one layout; `checked` as in `Wire`."""

    def __init__(self, layout: KVLayout, checked: bool = True) -> None:
        self._layout = layout
        self._wire = Wire(checked)

    def encode(
        self, request_id: str, payload: KVPayload, seq_len: int, piece: Piece | None = None, device: torch.device | None = None
    ) -> torch.Tensor:
        """The bytes of a request's payload, uint8[n], on `device` (None: host memory).

        `payload`: tensors [tokens, heads, head_dim]; of its heads those of `piece` are written, all for None. `seq_len` is stated as
        given.
        """
        piece = piece or self._whole()
        return self._wire.pack(self._metadata(request_id, seq_len, piece), self._tensors(self._sliced(payload, piece)), device)

    def decode(self, request_id: str, data: Buffer, land: Land, piece: Piece | None = None) -> tuple[KVPayload, Mapping[str, Any]]:
        """(payload, metadata); the payload's tensors are views of what `land` returns (see `Wire.unpack`).

        PayloadError where the bytes are damaged, another request's or another rank's, or of another layout.
        """
        metadata, tensors = self._wire.unpack(data, land)
        self._check_owner(request_id, metadata)
        self._check_layout(tensors, (piece or self._whole()).count)
        self._check_piece(metadata, piece or self._whole())
        payload = self._payload(self._in_order(tensors))
        self._check_length(metadata, payload)
        return payload, metadata

    def _whole(self) -> Piece:
        return Piece(0, 0, 0, 0, self._layout.heads)

    def _metadata(self, request_id: str, seq_len: int, piece: Piece) -> dict[str, Any]:
        return {"request_id": request_id, "seq_len": seq_len, "from_rank": piece.source_rank, "to_rank": piece.target_rank}

    def _sliced(self, payload: KVPayload, piece: Piece) -> KVPayload:
        heads = slice(piece.source_head, piece.source_head + piece.count)
        return KVPayload(tuple(k[:, heads] for k in payload.keys), tuple(v[:, heads] for v in payload.values))

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

    def _check_piece(self, metadata: Mapping[str, Any], piece: Piece) -> None:
        ranks = metadata.get("from_rank"), metadata.get("to_rank")
        if ranks != (piece.source_rank, piece.target_rank):
            raise PayloadError(f"payload from rank {ranks[0]} to rank {ranks[1]} came for {piece.source_rank} to {piece.target_rank}")
        if not isinstance(metadata.get("seq_len"), int):
            raise PayloadError(f"payload says seq_len = {metadata.get('seq_len')!r}")

    def _check_length(self, metadata: Mapping[str, Any], payload: KVPayload) -> None:
        rows = len(payload.keys[0])
        if rows > metadata["seq_len"]:
            raise PayloadError(f"payload holds {rows} tokens and says seq_len = {metadata['seq_len']}")

    def _check_layout(self, tensors: Sequence[WireTensor], heads: int) -> None:
        """Every layer's key and value, once, with as many heads as were asked for, the head_dim and dtype of this stage, as many tokens."""
        want = self._layout
        if sorted(item.order for item in tensors) != list(range(2 * want.layers)):
            raise PayloadError(f"payload holds {len(tensors)} tensors, not a key and a value for each of {want.layers} layers")
        for item in tensors:
            if item.tensor.dtype != want.dtype:
                raise PayloadError(f"{item.name} is {item.tensor.dtype}, this stage holds {want.dtype}")
            if tuple(item.tensor.shape[1:]) != (heads, want.head_dim):
                raise PayloadError(f"{item.name} has shape {list(item.tensor.shape)}, expected [tokens, {heads}, {want.head_dim}]")
        if len({len(item.tensor) for item in tensors}) != 1:
            raise PayloadError(f"layers hold different numbers of tokens: {sorted({len(item.tensor) for item in tensors})}")
