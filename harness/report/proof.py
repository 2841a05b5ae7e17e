"""What a proof came to: which fault was planted, which claims it names, and which of them caught it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.verdict import Verdict
from harness.report.board import Board, Seen

FATES = {"caught": "✓", "unmoved": "✓", "survived": "✗", "alarmed": "✗", "not run": "○"}
"""How a fault may end, with its glyph."""
_LOOKED_AT = ("✗", "✓", "○")
"""Glyphs in the order in which a person looks at them."""


@dataclass(frozen=True)
class FaultTold:
    """One fault of a proof, as the newest run that planted it says. `caught` and `missed` are claims, seen under it."""

    name: str
    fate: str
    role: str
    sentence: str
    caught: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The kind whose reference engine was broken."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Proof:
    """All proofs together. `unproved`: MUST claims that no fault made fail, where a whole proof was run."""

    faults: tuple[FaultTold, ...]
    unproved: tuple[str, ...]

    def tally(self, *roles: str) -> tuple[int, int]:
        """How many of the faults of these roles (all, without any) held, of how many that were run."""
        run = [fault for fault in self.faults if fault.fate != "not run" and (not roles or fault.role in roles)]
        return sum(FATES.get(fault.fate) == "✓" for fault in run), len(run)

    def of(self, claim: str) -> list[FaultTold]:
        """The faults that this claim caught, or missed, save null faults: these are caught by nobody."""
        return [fault for fault in self.faults if fault.role != "null" and claim in fault.caught + fault.missed]


def gather(board: Board) -> Proof:
    """The proofs of a board's runs; the newest run of a fault stands."""
    seen: dict[tuple[int, str], list[Seen]] = defaultdict(list)
    for one in board.planted:
        seen[id(one.session), one.result.fault].append(one)
    found: dict[str, FaultTold] = {}
    unproved: list[str] | None = None
    for session in board.sessions:
        faults = session.proof.get("faults")
        for name, told in faults.items() if isinstance(faults, Mapping) else ():
            found.setdefault(str(name), _fault(str(name), told, seen[id(session), name]))
        gaps = session.proof.get("unproved")
        if unproved is None and isinstance(gaps, list):
            unproved = [str(claim) for claim in gaps]
    ordered = sorted(found.values(), key=lambda fault: (_LOOKED_AT.index(FATES.get(fault.fate, "✗")), fault.name))
    return Proof(tuple(ordered), tuple(unproved or ()))


def _fault(name: str, told: Any, results: Iterable[Seen]) -> FaultTold:
    """From schema 2's object, or schema 1's fate alone."""
    told = told if isinstance(told, Mapping) else {"fate": told}
    verdicts = {one.result.claim: one.result.verdict for one in results}
    role = str(told.get("role") or "fault")
    caught = () if role == "null" else tuple(sorted(claim for claim, verdict in verdicts.items() if verdict is Verdict.FAIL))
    missed = told.get("missed")
    if not isinstance(missed, list):
        missed = [] if role == "null" else sorted(set(verdicts) - set(caught))
    return FaultTold(name, str(told.get("fate") or "not run"), role, str(told.get("sentence") or ""), caught, tuple(map(str, missed)))
