"""How a wrong input of the reference transfer engine is planted."""

from __future__ import annotations

from typing import Any

from harness.core.faults import Role, fault


def wrong_input(name: str, seam: str, *claims: str, engine: str = "*") -> Any:
    """Register the decorated function as a wrong input; `seam` is relative to the reference engine, `engine` where it is planted."""
    return fault(name, seam=f"harness.transfer.reference.{seam}", claims=claims, role=Role.WRONG_INPUT, engine=engine)
