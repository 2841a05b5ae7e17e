"""The static site of recorded runs: pages that need nothing but themselves, and open from a folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.core.claims import Claim
from harness.core.known_failures import KnownFailure
from harness.core.verdict import Verdict
from harness.report import matrix, pages, proof
from harness.report.board import Board, Seen, lay_out
from harness.report.engine_page import engine_told, known_of
from harness.report.faces import ORDER
from harness.report.plots import Picture
from harness.report.runs import RecordedRun
from harness.report.slugs import page_name

PAGE_LIMIT = 2_000_000
"""Bytes that no page exceeds for 10,000 results."""
_LIST = 1_200_000
"""Bytes of a page's list of failures or results, after which another page begins or the list ends with a word about the rest."""


def write_site(
    runs: Sequence[RecordedRun],
    out: Path,
    made: Iterable[Claim] = (),
    known: Sequence[KnownFailure] = (),
    pictures: Sequence[Picture] = (),
) -> Path:
    """Write the pages of all runs into the folder `out`, and return the path of index.html, which is written last.

    `made`: the claims of this checkout, for records of schema 1; `known`: its known failures; `pictures`: as harness.report.plots makes
    them. Files of other names in `out` stay. Raises UnreadableRun for a session record that is forged, OSError where the folder cannot be
    written.
    """
    board = lay_out(runs, made)
    out.mkdir(parents=True, exist_ok=True)
    for name, page in _pages(board, known, pictures):
        _write(out / name, page)
    return out / "index.html"


def _pages(board: Board, known: Sequence[KnownFailure], drawn: Sequence[Picture]) -> Iterator[tuple[str, str]]:
    common: dict[str, Any] = {"board": board, "proof": proof.gather(board), "has_pictures": bool(drawn)}
    for claim in board.claims.values():
        yield page_name("claim", claim.id), pages.render("claim.html.jinja", here="", claim=claim, **_of_claim(board, claim.id), **common)
    engines = [engine_told(board, label, known, _LIST) for label in board.labels]
    for engine in engines:
        yield page_name("engine", engine.label), pages.render("engine.html.jinja", here="", engine=engine, **common)
    parts = list(_parts(board.failures))
    for number, part in enumerate(parts):
        yield (
            _part("failures", number),
            pages.render("failures.html.jinja", here="failures", part=part, number=number, of=len(parts), **common),
        )
    yield "proof.html", pages.render("proof.html.jinja", here="proof", **common)
    yield "runs.html", pages.render("runs.html.jinja", here="runs", **common)
    if drawn:
        yield "pictures.html", pages.render("pictures.html.jinja", here="pictures", pictures=drawn, source=pages.picture, **common)
    laid = matrix.pages(board)
    if len(laid) > 1:
        for number, tables in enumerate(laid):
            told = _filters(tables)
            yield (
                _part("matrix", number),
                pages.render("matrix.html.jinja", here="", tables=tables, number=number, laid=laid, **told, **common),
            )
    tables = laid[0] if len(laid) == 1 else []
    seen = [verdict for verdict in ORDER if any(engine.counts[verdict] for engine in engines)]
    told = _filters(tables)
    yield (
        "index.html",
        pages.render(
            "index.html.jinja",
            here="index",
            tables=tables,
            laid=laid,
            known_of=known_of(known, board),
            engines=engines,
            verdicts_all=seen,
            **told,
            **common,
        ),
    )


def _of_claim(board: Board, claim: str) -> dict[str, Any]:
    """The claim's results that fit on a page, the worst first, and how many more there are."""
    cells = [(label, board.cells[claim, label]) for label in board.labels if (claim, label) in board.cells]
    results = sorted((seen for _, cell in cells for seen in cell.now), key=_severity)
    shown, left = _fitting(results)
    return {"results": shown, "left": left, "before": {label: cell.before[:12] for label, cell in cells if cell.before}}


def _severity(seen: Seen) -> tuple[int, str]:
    return ORDER.index(seen.result.verdict), seen.result.column


def _fitting(results: Sequence[Seen]) -> tuple[list[Seen], int]:
    first = next(_parts(results), [])
    return first, len(results) - len(first)


def _parts(results: Sequence[Seen]) -> Iterator[list[Seen]]:
    """The results on pages; one empty page for none."""
    part: list[Seen] = []
    room = _LIST
    for seen in results:
        weight = _weight(seen)
        if part and weight > room:
            yield part
            part, room = [], _LIST
        part.append(seen)
        room -= weight
    yield part


def _weight(seen: Seen) -> int:
    result = seen.result
    texts = (
        result.text or result.reason,
        result.reason,
        result.replay,
        result.test,
        result.column,
        result.column,
        result.claim,
        result.claim,
    )
    return 900 + sum(matrix.weigh(text[:16_100]) for text in texts)


def _filters(tables: Sequence[matrix.Table]) -> dict[str, Any]:
    found: set[Verdict] = {verdict for table in tables for verdict in table.verdicts}
    return {"verdicts": [verdict for verdict in ORDER if verdict in found]}


def _part(what: str, number: int) -> str:
    return f"{what}-{number + 1}.html" if number or what == "matrix" else f"{what}.html"


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".page.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
