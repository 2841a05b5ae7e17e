"""Errors for names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, name: str, valid: Iterable[str]) -> str:
    """`unknown engine 'x'; nearest: a, b` with the nearest valid names, or all of them if none is near."""
    names = sorted(set(valid))
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    if near:
        return f"unknown {what} {name!r}; nearest: {', '.join(near)}"
    return f"unknown {what} {name!r}; there are: {', '.join(names) or 'none'}"
