"""What the site says of one engine: what it offers, what it was judged on, and what it is known to break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.known_failures import KnownFailure
from harness.core.verdict import Verdict
from harness.report.board import Board, Seen
from harness.report.faces import ORDER
from harness.report.matrix import Column, column, weigh
from harness.report.runs import Figure
from harness.report.sessions import Session


@dataclass(frozen=True)
class CapabilityTold:
    """One declaration as the record has it."""

    name: str
    support: str
    reason: str
    value: str


@dataclass(frozen=True)
class EngineTold:
    """One engine label. `results` are those that fit on a page, the worst first, and `left` counts the others."""

    label: str
    parts: Column
    kind: str
    version: str
    environment: str
    session: Session
    newest: str
    capabilities: tuple[CapabilityTold, ...]
    counts: Counter[Verdict]
    results: tuple[Seen, ...]
    left: int
    figures: tuple[tuple[Seen, Figure], ...]
    known: tuple[KnownFailure, ...]

    @property
    def is_judged(self) -> bool:
        """Whether any claim was held to it; what was only UNSUPPORTED and UNAVAILABLE was not judged."""
        return any(verdict.judged for verdict, count in self.counts.items() if count)

    @property
    def plain(self) -> list[CapabilityTold]:
        """What it offers without an ado."""
        return [one for one in self.capabilities if one.support == "full" and not one.reason + one.value]

    @property
    def qualified(self) -> list[CapabilityTold]:
        """What it offers in part, from a version on, or not at all, and why."""
        return [one for one in self.capabilities if one not in self.plain]

    @property
    def findings(self) -> list[Seen]:
        """What fails the run, of the results shown."""
        return [seen for seen in self.results if seen.result.verdict.fails_the_run]


def engine_told(board: Board, label: str, known: Sequence[KnownFailure], limit: int) -> EngineTold:
    """Gather it from the board. `limit`: bytes of results."""
    own = [seen for (_, engine), cell in board.cells.items() if engine == label for seen in cell.now]
    own.sort(key=lambda seen: (ORDER.index(seen.result.verdict), seen.result.claim))
    newest = max(own, key=lambda seen: seen.result.start)
    bare = label.rpartition("@")[0]
    told = next((s.engines[bare] for s in board.sessions if s.engines.get(bare, {}).get("capabilities")), {})
    shown = _fitting(own, limit)
    return EngineTold(
        label=label,
        parts=column(label),
        kind=newest.result.kind,
        version=newest.result.version,
        environment=newest.session.environment or str(told.get("environment") or ""),
        session=newest.session,
        newest=newest.day,
        capabilities=_capabilities(told),
        counts=board.counts(label),
        results=tuple(shown),
        left=len(own) - len(shown),
        figures=tuple((seen, figure) for seen in own for figure in seen.result.figures)[:2000],
        known=tuple(entry for entry in known if entry.is_of(bare, newest.result.version)),
    )


def _fitting(own: Sequence[Seen], limit: int) -> list[Seen]:
    """Failures stand in full further up, and once more in this list as a line."""
    shown: list[Seen] = []
    for seen in own:
        result = seen.result
        texts = (
            result.reason[:600],
            result.claim,
            result.claim,
            result.text[:16_100] if result.verdict.fails_the_run else "",
            result.replay,
        )
        limit -= 420 + sum(map(weigh, texts))
        if limit < 0 and shown:
            break
        shown.append(seen)
    return shown


def _capabilities(told: Mapping[str, Any]) -> tuple[CapabilityTold, ...]:
    declared = told.get("capabilities")
    if not isinstance(declared, Mapping):
        return ()
    rows = []
    for name, one in declared.items():
        table = one if isinstance(one, Mapping) else {"support": one}
        since = f" {table['since']}" if table.get("since") else ""
        value = "" if table.get("value") is None else str(table["value"])
        rows.append(CapabilityTold(str(name), f"{table.get('support', 'full')}{since}", str(table.get("reason") or ""), value))
    return tuple(rows)


def known_of(known: Sequence[KnownFailure], board: Board) -> list[KnownFailure]:
    """The entries that are about an engine on the board, at the version that was judged last."""
    versions: dict[str, set[str]] = {}
    for (_, label), cell in board.cells.items():
        versions.setdefault(label.rpartition("@")[0], set()).update(seen.result.version for seen in cell.now)
    return [entry for entry in known if any(entry.is_of(name, version) for name, own in versions.items() for version in own)]
