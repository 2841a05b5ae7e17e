"""How fast this machine moves bytes: between host and card, and within the memory of each."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

HOST_BYTES = 256 << 20
CARD_BYTES = 1 << 30
"""Bytes of one copy within a card, many times its cache."""
ROUNDS = 7


@dataclass(frozen=True)
class Rate:
    """One way to copy. `rate`: bytes copied a second, the median of ROUNDS; a copy within one memory reads and writes each byte."""

    device: str
    copy: str
    size: int
    rate: float


def copies(device: torch.device) -> list[Rate]:
    """Within the host's memory for a CPU; for a card to it, from it, from pinned and from pageable memory, and within its own."""
    host = torch.ones(HOST_BYTES, dtype=torch.uint8)
    if device.type == "cpu":
        return [_rate(device, "within memory", host, torch.ones_like(host))]
    pinned = host.pin_memory()
    card = torch.ones(HOST_BYTES, dtype=torch.uint8, device=device)
    within = torch.ones(CARD_BYTES, dtype=torch.uint8, device=device)
    return [
        _rate(device, "pinned memory to card", pinned, card),
        _rate(device, "card to pinned memory", card, pinned),
        _rate(device, "pageable memory to card", host, card),
        _rate(device, "card to pageable memory", card, host),
        _rate(device, "within the card", within, torch.ones_like(within)),
    ]


def bandwidth(device: torch.device) -> float:
    """Bytes a second, those read and those written added up, of a large copy within the device's memory."""
    size = HOST_BYTES if device.type == "cpu" else CARD_BYTES
    source = torch.ones(size, dtype=torch.uint8, device=device)
    return 2 * _rate(device, "", source, torch.ones_like(source)).rate


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given; a CPU has by then."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _rate(device: torch.device, copy: str, source: torch.Tensor, target: torch.Tensor) -> Rate:
    times = []
    for _ in range(2 + ROUNDS):
        synchronize(device)
        began = time.perf_counter()
        target.copy_(source, non_blocking=True)
        synchronize(device)
        times.append(time.perf_counter() - began)
    return Rate(str(device), copy, source.numel(), source.numel() / statistics.median(times[2:]))
