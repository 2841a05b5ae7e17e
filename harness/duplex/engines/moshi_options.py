"""The options of `duplex/moshi`, and the switches of torch and of the engine that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from harness.core.names import unknown
from harness.core.threads import one_thread
from harness.duplex.engines.arithmetic import attention

CHOICES = {
    "weights": ("random", "hub"),
    "size": ("auto", "tiny", "7b"),
    "sdpa": ("default", "math", "efficient", "flash"),
    "graphs": ("auto", "on", "off"),
}


@dataclass(frozen=True)
class MoshiOptions:
    """`published`: weights from the hub, else random ones of `size`, `tiny` or `7b`. `graphs`: ticks are replayed from CUDA graphs."""

    published: bool
    size: str
    batch: int
    sdpa: str
    graphs: bool

    @classmethod
    def parse(cls, given: Mapping[str, str], device: str) -> MoshiOptions:
        """ValueError that names the option; one left out has its default."""
        known = {*CHOICES, "batch"}
        if set(given) - known:
            raise ValueError(f"duplex/moshi: {unknown('option', min(set(given) - known), known)}")
        chosen = {name: _choice(name, given.get(name, choices[0])) for name, choices in CHOICES.items()}
        batch = given.get("batch", "4")
        if not batch.isascii() or not batch.isdigit() or int(batch) < 1:
            raise ValueError(f"duplex/moshi: option batch = {batch!r}: give slots, at least 1")
        card = torch.device(device).type == "cuda"
        published = chosen["weights"] == "hub"
        if published and chosen["size"] == "tiny":
            raise ValueError("duplex/moshi: option size = 'tiny': what the hub has is 7b; weights=random is there in both sizes")
        if chosen["graphs"] == "on" and not card:
            raise ValueError(f"duplex/moshi: option graphs = 'on': {device} has no CUDA graphs")
        size = chosen["size"] if chosen["size"] != "auto" else ("7b" if card or published else "tiny")
        return cls(published, size, int(batch), chosen["sdpa"], graphs=card and chosen["graphs"] != "off")

    @contextmanager
    def arithmetic(self, device: torch.device) -> Iterator[None]:
        """Around each tick: the attention backend, and whether the engine compiles and captures. On a CPU it does neither.

        All three are read when a kernel is chosen, so what is captured inside keeps them.
        """
        from moshi.utils.compile import no_compile, no_cuda_graph

        with ExitStack() as switches:
            if device.type == "cpu":
                switches.enter_context(no_compile())
                switches.enter_context(one_thread())
            else:
                switches.enter_context(attention(self.sdpa))
            if not self.graphs:
                switches.enter_context(no_cuda_graph())
            yield


def _choice(name: str, value: str) -> str:
    if value not in CHOICES[name]:
        raise ValueError(f"duplex/moshi: option {name}: {unknown('value', value, CHOICES[name])}")
    return value
