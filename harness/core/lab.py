"""What a friendly engine offers beyond its protocol, so that a check can place an event inside it.

Only reference engines have a lab; a released engine declares the capability NEVER. No claim that every engine owes may need one.
"""

from __future__ import annotations

from typing import Protocol


class Lab(Protocol):
    """Operations are named by the engine (`copy` for a transfer manager); an unknown one raises ValueError with the known names."""

    def lag(self, op: str, ticks: int) -> None:
        """From now on `op` takes `ticks` ticks of the engine's virtual clock; 0 ends the lag."""
        ...

    def fail_next(self, op: str) -> None:
        """The next `op` raises inside the engine."""
        ...

    def advance(self, ticks: int) -> None:
        """Let `ticks` ticks pass."""
        ...
