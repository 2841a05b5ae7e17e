"""File names of pages, made of names that an adapter or a record chose."""

from __future__ import annotations

import hashlib
import re

_KEPT = 60
"""Characters of a name that a file's name keeps; file systems hold 255 bytes."""


def page_name(what: str, name: str) -> str:
    """`claim-duplex.isolation.recycle.html`: lower-case letters, digits, `.`, `_` and `-` alone, and another name for each other `name`.

    `what` is ours, such as `claim`. A name that had to be changed ends in a digest of the whole, so that no two share a file, not even
    where a file system takes capitals for small letters.
    """
    slug = re.sub(r"[^a-z0-9._]+", "-", name.lower())
    slug = re.sub(r"\.{2,}", ".", slug).strip(".-")[:_KEPT]
    if slug != name:
        slug = f"{slug}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}".lstrip("-")
    return f"{what}-{slug}.html"
