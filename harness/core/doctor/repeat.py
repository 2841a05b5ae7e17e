"""Whether operations repeat themselves: each loop is run twice from the same start, and every step's bits are compared."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch

from harness.core.bits import pattern
from harness.core.doctor.probes import Probe, probes

QUICK = (4, 32)
"""Batch sizes of the quick examination."""


@dataclass(frozen=True)
class Repeat:
    """What one probe came to.

    `differs`: batch size to the first step, from 0, whose bits were others in the second run; empty where it repeats itself. `rows`: the
    batch sizes in classes, within which row 0 has the same bits: information, since a kernel may choose another order of sums for another
    size. `missing`: why it could not run here.
    """

    device: str
    operation: str
    way: str
    steps: int = 0
    differs: Mapping[int, int] = field(default_factory=dict)
    rows: tuple[tuple[int, ...], ...] = ()
    missing: str = ""

    @property
    def holds(self) -> bool:
        """It ran, and repeated itself."""
        return not self.missing and not self.differs


def examine(device: torch.device, batches: Sequence[int] | None = None) -> list[Repeat]:
    """Every probe of the device, at these batch sizes or at its own."""
    return [repeats(probe, device, probe.batches if batches is None else batches) for probe in probes(device)]


@cache
def quick(device: str) -> tuple[Repeat, ...]:
    """Every probe at the QUICK batch sizes, asked once in this process."""
    return tuple(examine(torch.device(device), QUICK))


def repeats(probe: Probe, device: torch.device, batches: Iterable[int]) -> Repeat:
    """Run one probe twice at each batch size."""
    differs: dict[int, int] = {}
    rows: list[tuple[torch.Tensor, list[int]]] = []
    steps = 0
    try:
        for batch in batches:
            first = _bits(probe, batch)
            steps, step = len(first), _first_difference(first, _bits(probe, batch))
            if step is not None:
                differs[batch] = step
            _sort_in(rows, first[:, 0], batch)
    except RuntimeError as refused:
        # An attention backend that takes no such call raises it, and so does a card without memory.
        return Repeat(str(device), probe.operation, probe.way, missing=_first_sentence(refused))
    return Repeat(str(device), probe.operation, probe.way, steps, differs, tuple(tuple(sizes) for _, sizes in rows))


def _first_sentence(error: RuntimeError) -> str:
    return f"{str(error).strip()}\n".replace(". ", "\n").partition("\n")[0].rstrip(".")


def _bits(probe: Probe, batch: int) -> torch.Tensor:
    """The whole loop's output as integers, [steps, batch, ...]."""
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # a backend that is refused is explained at length
        return pattern(torch.stack(probe.run(batch)))


def _first_difference(first: torch.Tensor, second: torch.Tensor) -> int | None:
    steps = (first != second).flatten(1).any(1).nonzero()
    return int(steps[0]) if len(steps) else None


def _sort_in(rows: list[tuple[torch.Tensor, list[int]]], row: torch.Tensor, batch: int) -> None:
    for known, sizes in rows:
        if torch.equal(known, row):
            sizes.append(batch)
            return
    rows.append((row, [batch]))
