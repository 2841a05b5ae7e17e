"""The checksum of a frame: 64 bits, of bytes that lie in host memory or on a card."""

from __future__ import annotations

import torch
import xxhash

from harness.transfer.buffers import byte_view

CHUNK = 1 << 22
"""Words that are summed at a time on a card: the temporary stays small beside the payload."""
STEP = 0x9E3779B97F4A7C15 - (1 << 64)
"""An odd constant, as a signed word: the weights of neighbouring words are far apart."""


def checksum(data: torch.Tensor) -> int:
    """Of uint8[n]: XXH3 in host memory; on a card a sum that runs there, so that the bytes need not come down. The two differ.

    On a card n is a multiple of 8 (frames are of 64). Each word is multiplied by an odd weight of its own, modulo 2**64: no change of a
    single word goes unnoticed, and none of several but by a chance of one in 2**63.
    """
    if data.device.type == "cpu":
        return xxhash.xxh3_64_intdigest(byte_view(data))
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    words = data.view(torch.int64)
    for first in range(0, len(words), CHUNK):
        part = words[first : first + CHUNK]
        weights = (torch.arange(first, first + len(part), device=data.device) * 2 + 1) * STEP
        total += (part * weights).sum()
    return int(total) & ((1 << 64) - 1)
