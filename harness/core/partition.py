"""Splits work over machines or workers by expected time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One test. Jobs of one `boot` share an engine, which takes `boot_seconds` to come up wherever one of them runs."""

    name: str
    seconds: float
    boot: str = ""
    boot_seconds: float = 0.0


def partition(jobs: Sequence[Job], parts: int) -> list[list[Job]]:
    """The jobs in `parts` lists, some of which may be empty: by expected time, longest first, the same for the same jobs in any order."""
    raise NotImplementedError
