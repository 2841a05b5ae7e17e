"""The checksum of a frame: 64 bits, of bytes that lie in host memory or on a card."""

from __future__ import annotations

import torch
import xxhash

from harness.transfer.buffers import byte_view

CHUNK = 1 << 22
"""Words that are summed at a time on a card: the temporary stays small beside the payload."""
STEP, MIX, MIX_AGAIN = (constant - (1 << 64) for constant in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""The odd constants of SplitMix64, as signed words."""


def checksum(data: torch.Tensor) -> int:
    """Of uint8[n]: XXH3 in host memory; on a card a sum that runs there, so that the bytes need not come down. The two differ."""
    if data.device.type == "cpu":
        return xxhash.xxh3_64_intdigest(byte_view(data))
    return device_sum(data)


def device_sum(data: torch.Tensor) -> int:
    """Of uint8[n], n a multiple of 8 (frames are of 64), on any device.

    Each word goes through a bijection of its own, SplitMix64 begun at its place, and the results are added modulo 2**64. So no change of a
    single word goes unnoticed, and none of several but by a chance of one in 2**64. (A sum of words by weights would not do: the top bits
    of two words, two signs, cancel under any odd weights.)
    """
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    words = data.view(torch.int64)
    for first in range(0, len(words), CHUNK):
        part = words[first : first + CHUNK]
        mixed = torch.arange(first + 1, first + 1 + len(part), device=data.device).mul_(STEP).add_(part)
        mixed = _folded(mixed, 30).mul_(MIX)
        mixed = _folded(mixed, 27).mul_(MIX_AGAIN)
        total += _folded(mixed, 31).sum()
    return int(total) & ((1 << 64) - 1)


def _folded(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Each word xored with itself moved down by `bits`. Signed words bring their sign along, which is masked away."""
    return words ^ (words >> bits).bitwise_and_((1 << (64 - bits)) - 1)
