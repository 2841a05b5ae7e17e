"""The whole examination of a machine, and the record of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from harness.core import determinism, devices
from harness.core.doctor import rates, repeat
from harness.core.doctor.rates import Rate
from harness.core.doctor.repeat import Repeat


@dataclass(frozen=True)
class Checkup:
    """What was found. `bandwidth`: device to bytes a second, read and written. `failed`: a device that could not be asked, and why."""

    repeats: list[Repeat]
    copies: list[Rate]
    bandwidth: dict[str, float]
    failed: dict[str, str]

    def record(self) -> dict[str, Any]:
        """As JSON, with the machine's fingerprint and the policy under which it was examined."""
        return {"schema": 1, "machine": devices.fingerprint(), "determinism": determinism.in_force(), **asdict(self)}


def here() -> list[torch.device]:
    """The devices of this machine: its first card, if CUDA finds one, and its CPU."""
    return [torch.device("cuda"), torch.device("cpu")] if torch.cuda.is_available() else [torch.device("cpu")]


def examine(examined: list[torch.device]) -> Checkup:
    """Every probe and every copy on each of the devices, one device after the other."""
    found = Checkup([], [], {}, {})
    for device in examined:
        try:
            found.repeats.extend(repeat.examine(device))
            made = rates.copies(device)
        except RuntimeError as broken:
            found.failed[str(device)] = str(broken).strip().partition("\n")[0]
            continue
        found.copies.extend(made)
        found.bandwidth[str(device)] = 2 * made[-1].rate
    return found
