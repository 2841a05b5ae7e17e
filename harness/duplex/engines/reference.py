"""`duplex/reference`: the embedded engine, at the size and in the arithmetic that its options say."""

from __future__ import annotations

import torch

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.core.verdict import Unavailable
from harness.duplex.reference.config import CONFIGS, CPU_TILE, SWEEP
from harness.duplex.reference.engine import ReferenceEngine
from harness.duplex.reference.runner import SDPA
from harness.duplex.reference.weights import load

CHOICES = {
    "size": ("auto", *CONFIGS),
    "sdpa": tuple(SDPA),
    "dtype": ("auto", "float32", "bfloat16"),
    "graphs": ("auto", "on", "off"),
}
"""What each option may be; `batch` is a number."""
DEFAULTS = {"size": "auto", "batch": "4", "sdpa": "efficient", "dtype": "auto", "graphs": "auto"}


class ReferenceDuplex:
    """Builds reference engines."""

    @staticmethod
    def available() -> str | None:
        """It ships with Assay and runs wherever torch does."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> ReferenceEngine:
        """ValueError for an option or value that it does not know; Unavailable without the weights, or for graphs without a card."""
        options = _options(config)
        device = torch.device(config.device)
        on_card = device.type == "cuda"
        if options["graphs"] == "on" and not on_card:
            raise Unavailable(f"graphs = on: CUDA graphs need a card, and profile {config.profile} runs on a CPU")
        size = options["size"] if options["size"] != "auto" else "7b" if on_card else "tiny"
        dtype = options["dtype"] if options["dtype"] != "auto" else "bfloat16" if on_card else "float32"
        slots = _slots(options["batch"])
        rows = _padded(slots, on_card)
        weights = load(size, device, getattr(torch, dtype))
        return ReferenceEngine(weights, slots, rows, options["sdpa"], on_card and options["graphs"] != "off", clock)


def _options(config: EngineConfig) -> dict[str, str]:
    options = DEFAULTS | dict(config.options)
    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"duplex/reference: unknown options {unknown}; it has {', '.join(sorted(DEFAULTS))}")
    for name, choices in CHOICES.items():
        if options[name] not in choices:
            raise ValueError(f"duplex/reference: option {name} = {options[name]!r}: write one of {', '.join(choices)}")
    return options


def _slots(batch: str) -> int:
    if not batch.isascii() or not batch.isdigit() or int(batch) < 1:
        raise ValueError(f"duplex/reference: option batch = {batch!r}: write how many slots there are, 1 or more")
    return int(batch)


def _padded(slots: int, on_card: bool) -> int:
    """Rows of the tensors: whole tiles on a CPU, the next size that graphs are captured for on a card."""
    if not on_card:
        return -(-slots // CPU_TILE) * CPU_TILE
    if slots > SWEEP[-1]:
        raise ValueError(
            f"duplex/reference: option batch = {slots}: a card's sizes are {', '.join(map(str, SWEEP))}; write at most {SWEEP[-1]}"
        )
    return next(size for size in SWEEP if size >= slots)
