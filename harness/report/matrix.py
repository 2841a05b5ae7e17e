"""The matrix of claims by engines: rows in groups, groups in kinds, kinds on as many pages as a browser likes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

from markupsafe import escape

from harness.core.verdict import Verdict
from harness.report.board import Board, Cell, ClaimTold

PAGE = 1_000_000
"""Bytes of matrix a page may have, by the estimate of `Row.weight`; a page is held to twice as many."""
_CELL, _LINK, _ROW = 95, 150, 330
"""Bytes of markup of a cell, around what a cell says and links to, and of a row."""
SAID = 100
"""Characters of a reason that a cell shows under the pointer."""
_SENTENCE = 400
"""Characters of a sentence that a row shows; the claim's own page has all."""


@dataclass(frozen=True)
class Column:
    """An engine as a head of a column. `short`, `options` and `profile` are the parts of its label."""

    label: str
    short: str
    options: str
    profile: str


@dataclass(frozen=True)
class Row:
    """A claim and its cell in each column, None where an engine was not judged on it."""

    claim: ClaimTold
    cells: tuple[Cell | None, ...]

    @property
    def sentence(self) -> str:
        """As much of it as a row has room for."""
        return clip(self.claim.sentence, _SENTENCE)

    @property
    def short(self) -> str:
        """The id without its kind."""
        return self.claim.id.partition(".")[2] or self.claim.id

    @property
    def weight(self) -> int:
        """Bytes of its markup, about."""
        linked = [cell.shown.result for cell in self.cells if cell and (cell.verdict.fails_the_run or cell.verdict is Verdict.KNOWN)]
        links = sum(_LINK + len(self.claim.id) + 2 * weigh(result.column) + weigh(result.reason[:SAID]) for result in linked)
        return _ROW + weigh(self.sentence) + 3 * weigh(self.claim.id) + _CELL * len(self.cells) + links


@dataclass(frozen=True)
class Group:
    """The claims of one topic. `kept`: for each column how many hold, of how many that were judged; empty where none was."""

    name: str
    rows: tuple[Row, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        """One a column, such as `11/12`."""
        return tuple(_share([cell for cell in column if cell]) for column in zip(*(row.cells for row in self.rows), strict=True))


@dataclass(frozen=True)
class Table:
    """The matrix of one kind, or a part of it."""

    kind: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]

    @property
    def verdicts(self) -> set[Verdict]:
        """What is to be seen in it."""
        return {cell.verdict for group in self.groups for row in group.rows for cell in row.cells if cell}


def tables(board: Board) -> list[Table]:
    """A table a kind."""
    return [_table(board, kind) for kind in board.kinds]


def pages(board: Board, limit: int = PAGE) -> list[list[Table]]:
    """The tables on pages of at most `limit` bytes, about; a group that is larger than a page is cut between rows."""
    made: list[list[Table]] = [[]]
    left = limit
    for table in tables(board):
        for group in _cut(table, limit):
            weight = sum(row.weight for row in group.rows)
            if weight > left and made[-1]:
                made.append([])
                left = limit
            left -= weight
            page = made[-1]
            if page and page[-1].kind == table.kind:
                page[-1] = replace(page[-1], groups=(*page[-1].groups, group))
            else:
                page.append(replace(table, groups=(group,)))
    return made


def _cut(table: Table, limit: int) -> list[Group]:
    cut: list[Group] = []
    for group in table.groups:
        rows: list[Row] = []
        for row in group.rows:
            if rows and sum(one.weight for one in rows[-1:]) * (len(rows) + 1) > limit:
                cut.append(replace(group, rows=tuple(rows)))
                rows = []
            rows.append(row)
        cut.append(replace(group, rows=tuple(rows)))
    return cut


def _table(board: Board, kind: str) -> Table:
    labels = [label for label in board.labels if label.partition("/")[0] == kind]
    held = [claim for claim in board.claims.values() if any((claim.id, label) in board.cells for label in labels)]
    rows = [Row(claim, tuple(board.cells.get((claim.id, label)) for label in labels)) for claim in held]
    topics = groupby(rows, key=lambda row: row.short.rpartition(".")[0] or row.short)
    return Table(kind, tuple(map(column, labels)), tuple(Group(name, tuple(own)) for name, own in topics))


def column(label: str) -> Column:
    """The parts of `transfer/reference:connector=shm@cpu`."""
    engine, _, profile = label.rpartition("@")
    name, _, options = engine.partition(":")
    return Column(label, name.partition("/")[2] or name, options.replace(",", ", "), profile)


def _share(cells: list[Cell]) -> str:
    judged = [cell for cell in cells if cell.verdict.judged]
    return f"{sum(cell.verdict is Verdict.PASS for cell in judged)}/{len(judged)}" if judged else ""


def clip(text: str, limit: int) -> str:
    """The text, or its beginning and how much was left out."""
    return text if len(text) <= limit else f"{text[:limit]} ... ({len(text) - limit} more characters)"


def weigh(text: str) -> int:
    """Bytes that a text takes on a page."""
    return len(str(escape(text)).encode("utf-8", "replace"))
