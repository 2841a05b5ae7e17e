"""How a catalogued fault of the reference duplex engine is planted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.faults import fault

REFERENCE = "harness.duplex.reference"


def catalogued(name: str, seam: str, *, claims: Sequence[str], source: str, raises: Sequence[type[Exception]] = ()) -> Any:
    """Register the decorated function as the fault `duplex/<name>`; `seam` is relative to the reference engine."""
    return fault(f"duplex/{name}", seam=f"{REFERENCE}.{seam}", claims=claims, source=source, raises=raises)
