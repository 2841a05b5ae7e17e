"""How a catalogued fault of the embedded prefix-cache server is planted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.faults import fault

REFERENCE = "harness.tier.reference"
ENGINE = "tier/reference"
"""Where they are planted. The same server behind HTTP has wrong inputs of its own."""


def catalogued(name: str, seam: str, *, claims: Sequence[str], source: str, raises: Sequence[type[Exception]] = ()) -> Any:
    """Register the decorated function as the fault `tier/<name>`; `seam` is relative to the embedded server."""
    return fault(f"tier/{name}", seam=f"{REFERENCE}.{seam}", claims=claims, source=source, raises=raises, engine="tier/reference")
