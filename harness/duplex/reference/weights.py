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
TABLE = "tiny.json"
TRAINED = "tiny.safetensors"
TRAINED_SIZE = "tiny"
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


_SHARED: WeakValueDictionary[tuple[str, Path, torch.device, torch.dtype], Weights] = WeakValueDictionary()


def load(size: str, device: torch.device, dtype: torch.dtype, data: Path = DATA) -> Weights:
    """Unavailable where a file does not lie in `data`, ValueError or RuntimeError where it holds something else."""
    for path in (data / TABLE, data / TRAINED) if size == TRAINED_SIZE else (data / TABLE,):
        if not path.is_file():
            raise Unavailable(f"{path} is missing: run from a whole checkout, or make it with fixtures/duplex_training.py")
    key = (size, data, device, dtype)
    weights = _SHARED.get(key)
    if weights is None:
        weights = _SHARED[key] = _read(size, device, dtype, data)
    return weights


def _read(size: str, device: torch.device, dtype: torch.dtype, data: Path) -> Weights:
    table = Table.read(data / TABLE)
    if size != TRAINED_SIZE:
        return Weights(DuplexModel.random(CONFIGS[size], RANDOM_SEED, device, dtype), table, trained=False)
    model = DuplexModel.load(data / TRAINED, CONFIGS[size], device, dtype)
    if set(model.voices) != set(table.voices):
        raise ValueError(f"{data}: {TABLE} names the voices {list(table.voices)}, {TRAINED} holds {list(model.voices)}")
    model.voices = {name: model.voices[name] for name in table.voices}
    return Weights(model, table, trained=True)
