"""The weights of each size, and the words that they know. Engines of one process share them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import torch

from harness.core.verdict import Unavailable
from harness.duplex.reference.config import CONFIGS
from harness.duplex.reference.model import DuplexModel
from harness.duplex.reference.words import Table

DATA = Path(__file__).parents[3] / "fixtures" / "data" / "duplex"
"""What ships with a checkout: recordings, words and the trained weights of size tiny."""
TRAINED = "tiny"
RANDOM_SEED = 0
"""Of the weights of every other size."""


@dataclass(eq=False)
class Weights:
    """A network, its table of words, and whether it was trained to answer the table's dialogues."""

    model: DuplexModel
    table: Table
    trained: bool

    @property
    def voices(self) -> tuple[str, ...]:
        """The names that the network has for its voices, the default first."""
        return tuple(self.model.voices)


_SHARED: WeakValueDictionary[tuple[str, torch.device, torch.dtype], Weights] = WeakValueDictionary()


def load(size: str, device: torch.device, dtype: torch.dtype, data: Path = DATA) -> Weights:
    """Unavailable where the files do not lie in `data`, ValueError or RuntimeError where they hold something else."""
    missing = [path for path in (data / "tiny.json",) if not path.is_file()]
    if missing:
        raise Unavailable(f"{missing[0]} is missing: run from a checkout, or train the weights with fixtures/duplex_training.py")
    key = (f"{size} of {data}", device, dtype)
    weights = _SHARED.get(key)
    if weights is None:
        weights = _SHARED[key] = _read(size, device, dtype, data)
    return weights


def _read(size: str, device: torch.device, dtype: torch.dtype, data: Path) -> Weights:
    table = Table.read(data / "tiny.json")
    if size != TRAINED or not (data / "tiny.safetensors").is_file():
        return Weights(DuplexModel.random(CONFIGS[size], RANDOM_SEED, device, dtype), table, trained=False)
    model = DuplexModel.load(data / "tiny.safetensors", CONFIGS[size], device, dtype)
    if sorted(model.voices) != sorted(table.voices):
        raise ValueError(f"{data}: tiny.json names the voices {list(table.voices)}, tiny.safetensors holds {list(model.voices)}")
    model.voices = {name: model.voices[name] for name in table.voices}
    return Weights(model, table, trained=True)
