"""`reset_streaming(mask)` leaves a row's keys and values in the caches, masked: one NaN sample of a row is NaN for whoever is next in it.

Shows in moshi 0.2.13. Expected: a row that was reset encodes a sound to the latents that it has in a fresh batch.
Exits 0 while it shows, 1 once it does not.
"""

import sys

import torch
from moshi.models import loaders

ROWS, RESET, TICKS = 2, 1, 4
FORMER = 3
"""Ticks of the row's former occupant, the last of which holds the NaN."""


def latents(spoiled: bool) -> torch.Tensor:
    """What the codec makes of a tone in every row, [rows, channels, ticks], after a former occupant of row RESET that is reset by mask."""
    torch.manual_seed(0)
    mimi = loaders.get_mimi(None)
    size = mimi.frame_size
    tone = (0.1 * torch.sin(torch.arange(TICKS * size) * 0.05)).repeat(ROWS, 1, 1).split(size, dim=-1)
    last = tone[FORMER - 1].clone()
    if spoiled:
        last[RESET, 0, 7] = float("nan")
    with mimi.streaming(ROWS):
        for frame in (*tone[: FORMER - 1], last):
            mimi.encode_to_latent(frame, quantize=False)
        mimi.reset_streaming(torch.arange(ROWS) == RESET)
        ticks = [mimi.encode_to_latent(frame, quantize=False) for frame in tone]
    return torch.cat(ticks, dim=-1)


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    with torch.no_grad():
        orderly, after_nan = latents(spoiled=False), latents(spoiled=True)
    print(f"of {TICKS} ticks after the reset, NaN in the row's latents: {int(after_nan[RESET].isnan().any(dim=0).sum())}")
    print(f"rows that were not spoiled are bit-equal: {torch.equal(orderly[0], after_nan[0])}")
    return not torch.equal(orderly[RESET], after_nan[RESET])


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
