"""How a verdict looks: a glyph, a word and a colour each, so that nobody depends on the colour."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.verdict import Verdict

GLYPHS = {
    Verdict.FAIL: "✗",
    Verdict.ERROR: "‼",
    Verdict.INCONCLUSIVE: "?",
    Verdict.VACUOUS: "∅",
    Verdict.KNOWN: "⚑",
    Verdict.PASS: "✓",
    Verdict.UNSUPPORTED: "\N{EN DASH}",
    Verdict.UNAVAILABLE: "○",
}
"""From what a person must look at first to what says least; the order in which verdicts stand everywhere on the site."""

MEANINGS = {
    Verdict.FAIL: "the claim is broken",
    Verdict.ERROR: "Assay broke, not the engine",
    Verdict.INCONCLUSIVE: "the engine does not repeat itself, so nobody can say who is guilty",
    Verdict.VACUOUS: "nothing was compared, or the path under test was never taken",
    Verdict.KNOWN: "fails, as an entry or a declaration says that it does",
    Verdict.PASS: "the claim holds",
    Verdict.UNSUPPORTED: "the engine does not offer what the claim asks for",
    Verdict.UNAVAILABLE: "the engine cannot run here",
}

ORDER = tuple(GLYPHS)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The one to look at first. Raises ValueError for none."""
    return min(verdicts, key=ORDER.index)
