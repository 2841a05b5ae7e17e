"""What a shard asks of a Ray node, and what the nodes of a cluster have.

A node declares its cards by class beside Ray's own count of GPUs: `ray start --resources='{"H100": 8}'`. A card that is more than a class
asks for is declared under both names, since Ray compares names alone: an H200 node says '{"H100": 8, "H200": 8}'. `python -m ci.ray_runner
--node H200 8` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ci.lanes import Lane
from harness.core.devices import CARD_CLASSES
from harness.core.names import unknown

Resources = dict[str, float]
"""Names of Ray's to how many."""


def resources_of(lane: Lane, cpus: int) -> Resources:
    """What one shard of the lane asks of a node: CPU, and for cards GPU and their class."""
    asked: Resources = {"CPU": cpus}
    if lane.card_class is not None:
        asked |= {"GPU": lane.cards, lane.card_class: lane.cards}
    return asked


def declared(card_class: str, cards: int) -> dict[str, int]:
    """What a node with such cards declares: its class and every class that its cards satisfy. Raises ValueError for an unknown class."""
    if card_class not in CARD_CLASSES:
        raise ValueError(unknown("card class", card_class, CARD_CLASSES))
    own = CARD_CLASSES[card_class]
    return {
        name: cards
        for name, wanted in CARD_CLASSES.items()
        if wanted.compute_capability == own.compute_capability and wanted.memory_gb <= own.memory_gb
    }


def options_of(asked: Resources) -> dict[str, Any]:
    """The same as options of a Ray task."""
    rest = {name: amount for name, amount in asked.items() if name not in ("CPU", "GPU")}
    return {"num_cpus": asked["CPU"], "num_gpus": asked.get("GPU", 0), "resources": rest}


def satisfiable(asked: Resources, nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a living node could run it, if nothing else ran there; nodes as of `ray.nodes()`."""
    return any(all(node["Resources"].get(name, 0) >= amount for name, amount in asked.items()) for node in nodes if node["Alive"])


def written(resources: Mapping[str, float]) -> str:
    """`CPU 1, GPU 2, H100 2`: what counts of it."""
    told = [f"{name} {amount:g}" for name, amount in sorted(resources.items()) if name in ("CPU", "GPU", *CARD_CLASSES)]
    return ", ".join(told) or "nothing"


def inventory(nodes: Iterable[Mapping[str, Any]]) -> str:
    """What the living nodes have, for a person."""
    told = [f"{node['NodeManagerHostname']} ({written(node['Resources'])})" for node in nodes if node["Alive"]]
    return "; ".join(told) or "no node"
