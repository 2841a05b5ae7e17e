"""A shard as it is handed to Ray, and the rules that it is run by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ci.ray_cluster import Resources

BROKEN, INTERRUPTED = 3, 2
"""Exit statuses of pytest's."""


@dataclass(frozen=True)
class Job:
    """One shard: its name, environment and tests, the command that runs it (what follows the Python), what it asks of a node."""

    name: str
    environment: str
    tests: tuple[str, ...]
    command: tuple[str, ...]
    resources: Resources


@dataclass(frozen=True)
class Rules:
    """How shards are run.

    `seconds`: the limit of one attempt. `patience`: for how many seconds there may be no node that could run a shard. `order`: what
    `ci.ray_task.attempt` is given of it.
    """

    retries: int
    seconds: float
    patience: float
    order: dict[str, Any]
