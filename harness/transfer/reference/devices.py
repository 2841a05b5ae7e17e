"""Payloads on and off a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.transfer.protocol import KVPayload


class DeviceCopy:
    """Moves payloads to a device. One is used by one thread, and owns that thread's copy stream."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def to(self, payload: KVPayload, device: torch.device | None) -> KVPayload:
        """The payload on `device`, all of it there on return; as it is for None."""
        if device is None:
            return payload
        if device.type != "cuda":
            return _moved(payload, device)
        stream = self._streams.setdefault(device, torch.cuda.Stream(device))
        # Beside the default stream, so that a prefetch does not queue behind the request that computes now.
        with torch.cuda.stream(stream):
            moved = _moved(payload, device)
        stream.synchronize()
        return moved


def record_use(payload: KVPayload) -> None:
    """Tell the allocator that the current stream uses a payload that another stream allocated, so that it is not reused too soon."""
    for tensor in _tensors(payload):
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))


def _tensors(payload: KVPayload) -> Iterator[torch.Tensor]:
    return (tensor for tensor in (*payload.keys, *payload.values) if tensor is not None)


def _moved(payload: KVPayload, device: torch.device) -> KVPayload:
    def move(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor.to(device)

    return KVPayload(tuple(map(move, payload.keys)), tuple(map(move, payload.values)))
