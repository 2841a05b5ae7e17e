"""What a leader says of its deliveries before their bytes: JSON, from which a follower builds the same out of one flat buffer."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.transfer.protocol import Delivery, KVPayload, Outcome
from harness.transfer.reference.errors import PayloadError

ALIGN = 64
"""Tensors start at multiples of this many bytes, so that a view of any dtype is aligned."""


@dataclass(frozen=True)
class Announcement:
    """Of one request: each delivery without its tensors, where those lie in the buffer, and how many bytes it has."""

    request_id: str
    deliveries: tuple[dict[str, Any], ...]
    nbytes: int

    @classmethod
    def of(cls, request_id: str, deliveries: Sequence[Delivery]) -> Announcement:
        """ValueError for metadata that JSON does not hold."""
        described, size = [], 0
        for delivery in deliveries:
            layers: list[dict[str, Any] | None] = []
            for tensor in _tensors(delivery):
                layers.append(None if tensor is None else _place(tensor, size))
                size += 0 if tensor is None else -(-tensor.nbytes // ALIGN) * ALIGN
            described.append(
                {
                    "outcome": delivery.outcome.value,
                    "reason": delivery.reason,
                    "size": delivery.size,
                    "valid_tokens": delivery.valid_tokens,
                    "metadata": dict(delivery.metadata),
                    "tensors": layers if delivery.payload is not None else None,
                }
            )
        return cls(request_id, tuple(described), size)

    def to_json(self) -> bytes:
        return json.dumps({"request_id": self.request_id, "deliveries": self.deliveries, "nbytes": self.nbytes}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Announcement:
        """PayloadError for anything but what `to_json` wrote."""
        try:
            table = json.loads(text)
            return cls(table["request_id"], tuple(table["deliveries"]), int(table["nbytes"]))
        except (ValueError, KeyError, TypeError) as wrong:
            raise PayloadError(f"the leader's announcement cannot be read: {wrong!r}") from wrong


def flattened(announcement: Announcement, deliveries: Sequence[Delivery], device: torch.device) -> torch.Tensor:
    """The tensors of the deliveries, uint8[nbytes] on `device`, each where the announcement says."""
    flat = torch.zeros(announcement.nbytes, dtype=torch.uint8, device=device)
    for delivery, described in zip(deliveries, announcement.deliveries, strict=True):
        for tensor, place in zip(_tensors(delivery), described["tensors"] or (), strict=True):
            if tensor is not None:
                start = place["offset"]
                flat[start : start + tensor.nbytes].copy_(tensor.contiguous().view(-1).view(torch.uint8))
    return flat


def rebuilt(announcement: Announcement, flat: torch.Tensor) -> list[Delivery]:
    """The deliveries; their tensors are views of `flat`."""
    return [_delivery(described, flat) for described in announcement.deliveries]


def _delivery(described: dict[str, Any], flat: torch.Tensor) -> Delivery:
    payload = None
    if described["tensors"] is not None:
        tensors = tuple(None if place is None else _view(place, flat) for place in described["tensors"])
        payload = KVPayload(tensors[0::2], tensors[1::2])
    fields = {name: described[name] for name in ("size", "valid_tokens", "metadata", "reason")}
    return Delivery(Outcome(described["outcome"]), payload, **fields)


def _tensors(delivery: Delivery) -> list[torch.Tensor | None]:
    """Keys and values by turns."""
    payload = delivery.payload
    return [] if payload is None else [tensor for pair in zip(payload.keys, payload.values, strict=True) for tensor in pair]


def _place(tensor: torch.Tensor, offset: int) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "offset": offset}


def _view(place: dict[str, Any], flat: torch.Tensor) -> torch.Tensor:
    dtype, shape = getattr(torch, place["dtype"]), place["shape"]
    size = math.prod(shape) * dtype.itemsize
    return flat[place["offset"] : place["offset"] + size].view(dtype).view(shape)
