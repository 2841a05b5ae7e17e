"""A torch.distributed world of children, one a rank: over gloo on the loopback device, or over NCCL, each on a card of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.core.blueprint import Blueprint
from harness.transfer.processes.child import WORKSHOP, Kept
from harness.transfer.processes.parent import Child, Pending
from harness.transfer.processes.remote import Remote, RemoteConnector, RemoteEngine
from harness.transfer.protocol import Topology, TransferConfig

COLLECTIVE_TIMEOUT = 10.0
"""Seconds after which a collective call of the world gives up a rank that does not take part."""


class World:
    """`size` ranks, each with the engine of the blueprint. Close it, or use it as a context manager. `backend`: gloo or nccl."""

    def __init__(
        self, blueprint: Blueprint, size: int, deadline: float, timeout: float = COLLECTIVE_TIMEOUT, backend: str = "gloo"
    ) -> None:
        self.size = size
        self.connectors: list[RemoteConnector] = []
        self.managers: list[Remote] = []
        with ExitStack() as opened:
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="assay-world-"))
            self.children = [opened.enter_context(Child(f"rank {rank}", deadline)) for rank in range(size)]
            store = str(Path(folder) / "store")
            joining = [child.begin(WORKSHOP, "join", rank, size, store, timeout, backend) for rank, child in enumerate(self.children)]
            for rank in joining:
                rank.result()
            self._engines = [RemoteEngine(child, blueprint) for child in self.children]
            self._opened = opened.pop_all()

    def deploy(self, address: str, topologies: Sequence[Topology], config: TransferConfig) -> None:
        """One manager a rank, each over a witnessed connector of its own that joins the one at `address`."""
        self.connectors = [engine.connector(address).witnessed() for engine in self._engines]
        parts = zip(self._engines, topologies, self.connectors, strict=True)
        # All at once: an engine may make its groups here, which is collective.
        deploying = [engine.begin_deploy(topology, connector, config) for engine, topology, connector in parts]
        self.managers = [Remote(child, pending.result()) for child, pending in zip(self.children, deploying, strict=True)]

    def lies_on(self, kept: Sequence[Kept]) -> list[set[str]]:
        """Of the payload that each rank keeps: the devices on which its tensors lie there."""
        return [child.call(WORKSHOP, "lies_on", one) for child, one in zip(self.children, kept, strict=True)]

    def begin(self, name: str, arguments: Callable[[int], tuple[Any, ...]], keep: bool = False) -> list[Pending]:
        """Call the method of every rank's manager, with the arguments that its rank has, all at once. `keep`: results stay there."""
        ranks = enumerate(self.managers)
        return [(manager.begin_keep if keep else manager.begin)(name, *arguments(rank)) for rank, manager in ranks]

    def close(self) -> None:
        """End every rank: destroying the groups waits for nobody, but a rank that a collective call holds is killed."""
        self._opened.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
