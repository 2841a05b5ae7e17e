"""The sizes of the embedded prefix-cache server's network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

SLIDING, FULL = "sliding", "full"
GROUPS = (SLIDING, FULL)
"""Layer i is of group i % 2."""
LAYER_TYPES = {SLIDING: "sliding_attention", FULL: "full_attention"}
"""What transformers calls the layers of a group."""


@dataclass(frozen=True)
class NetworkConfig:
    """A GptOss network: layers by turns of group SLIDING, of `window` positions with the own one, and FULL.

    `rope` is transformers' `rope_parameters`. `max_positions`: a prompt and its new tokens fit in it. `experts_implementation` is
    transformers': `eager` waits for the device in every layer, `grouped_mm` does not. `pieces`: in how many copies of equally many layers
    a page is loaded; a layer waits for its piece alone.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    experts_per_token: int
    window: int
    vocabulary: int
    max_positions: int
    rope: dict[str, Any]
    dtype: torch.dtype
    experts_implementation: str
    pieces: int

    def __post_init__(self) -> None:
        if self.layers % len(GROUPS) or self.heads % self.kv_heads or self.layers_per_group % self.pieces:
            raise ValueError(f"{self.layers} layers split into 2 groups and {self.pieces} pieces, {self.heads} heads over {self.kv_heads}")

    @property
    def layers_per_group(self) -> int:
        """Each group has as many."""
        return self.layers // len(GROUPS)

    def group(self, layer: int) -> str:
        """The group of layer `layer`."""
        return GROUPS[layer % len(GROUPS)]

    def row(self, layer: int) -> int:
        """Its place among the layers of its group."""
        return layer // len(GROUPS)

    def first(self, group: str, start: int) -> int:
        """The first position that a layer of `group` attends to from position `start`."""
        return max(0, start - self.window + 1) if group == SLIDING else 0


SIZES = {
    "tiny": NetworkConfig(
        layers=2,
        hidden=64,
        intermediate=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        experts=4,
        experts_per_token=2,
        window=32,
        vocabulary=512,
        max_positions=8192,
        rope={"rope_type": "default", "rope_theta": 10000.0},
        dtype=torch.float32,
        experts_implementation="eager",
        pieces=1,
    ),
    # https://huggingface.co/openai/gpt-oss-20b/blob/main/config.json
    "20b": NetworkConfig(
        layers=24,
        hidden=2880,
        intermediate=2880,
        heads=64,
        kv_heads=8,
        head_dim=64,
        experts=32,
        experts_per_token=4,
        window=128,
        vocabulary=201088,
        max_positions=131072,
        rope={
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        dtype=torch.bfloat16,
        experts_implementation="grouped_mm",
        pieces=3,
    ),
}


def config_of(size: str, device: torch.device) -> NetworkConfig:
    """Of option `size`: `tiny`, `20b`, or `auto`, which goes by the device."""
    if size == "auto":
        size = "tiny" if device.type == "cpu" else "20b"
    if size not in SIZES:
        raise ValueError(f"option size = {size!r}: auto or one of {', '.join(SIZES)}")
    return SIZES[size]
