"""How a wrong input of the embedded prefix-cache server is planted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.faults import Role, fault


def wrong_input(name: str, seam: str, *claims: str, engine: str = "tier/reference", raises: Sequence[type[Exception]] = ()) -> Any:
    """Register the decorated function as the wrong input `tier/<name>`; `raises` as in `fault`.

    `seam` is relative to the embedded server, or whole if it begins with `harness.`; `engine` is where it is planted.
    """
    seam = seam if seam.startswith("harness.") else f"harness.tier.reference.{seam}"
    return fault(f"tier/{name}", seam=seam, claims=claims, role=Role.WRONG_INPUT, engine=engine, raises=raises)
