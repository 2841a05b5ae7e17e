"""How a wrong input of the reference duplex engine is planted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.faults import Role, fault


def wrong_input(name: str, seam: str, *claims: str, engine: str = "*", raises: Sequence[type[Exception]] = ()) -> Any:
    """Register the decorated function as a wrong input; `seam` is relative to the reference engine, `engine` where it is planted.

    `raises` as in `fault`.
    """
    seam = f"harness.duplex.reference.{seam}"
    return fault(name, seam=seam, claims=claims, role=Role.WRONG_INPUT, engine=engine, raises=raises)
