"""What counts as being refused gated weights, and what as a failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.core.verdict import Unavailable


@contextmanager
def gated(weights: str) -> Iterator[None]:
    """Turn a refusal by the hub, raised inside, into Unavailable; anything else is raised as it is.

    Source: the seed checks of a full-duplex batcher, point 5: the type's name holds `Gated`, or the text holds 401 or 403.
    """
    try:
        yield
    except Exception as error:
        if not is_refusal(error):
            raise
        raise Unavailable(f"no access to {weights}: {type(error).__name__}: {str(error).splitlines()[0]}") from error


def is_refusal(error: BaseException) -> bool:
    """Whether the hub said that this account may not have the file."""
    return "Gated" in type(error).__name__ or any(status in str(error) for status in ("401", "403"))
