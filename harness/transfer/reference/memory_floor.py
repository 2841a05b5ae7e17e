"""Whether a device has room for a prefetch: memory that requests need must not go to caches fetched ahead of them."""

from __future__ import annotations

import os

import torch

from harness.transfer.reference.lab import ReferenceLab


class MemoryFloor:
    """`share` of a device's memory, 0 to 1, must be free. ValueError for a share outside."""

    def __init__(self, share: float, lab: ReferenceLab | None) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"min_free_device = {share}; it is a share, 0 to 1")
        self._share, self._lab = share, lab

    def leaves_room(self, device: torch.device | None) -> bool:
        """Whether a prefetch may go there. None is host memory, as the device `cpu` is."""
        return self._share <= 0 or self._free(device) >= self._share

    def _free(self, device: torch.device | None) -> float:
        if self._lab is not None and self._lab.free_memory is not None:
            return self._lab.free_memory
        if device is not None and device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
        else:
            free, total = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PHYS_PAGES")
        return free / total
