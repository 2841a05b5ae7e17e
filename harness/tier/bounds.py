"""What page arithmetic alone allows: the most tokens that any cache can reuse."""

from __future__ import annotations

from collections.abc import Sequence


def most_cached(prompt_tokens: int, page: int | None, seen: int | None = None) -> int:
    """Tokens of a prompt that can come from a cache of whole pages; the last one is always computed.

    `seen`: how many tokens from its start an earlier prompt had, where that is known.
    """
    known = prompt_tokens - 1 if seen is None else min(seen, prompt_tokens - 1)
    return max(0, known) // (page or 1) * (page or 1)


def shared(prompt: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that two prompts have in common from the start."""
    return next((place for place, (one, two) in enumerate(zip(prompt, other, strict=False)) if one != two), min(len(prompt), len(other)))


def best_cached(prompts: Sequence[Sequence[int]], *, chunk: int, kept: int) -> int:
    """Tokens that no policy can exceed over these prompts, asked one at a time, with places for `kept` tokens in all tiers together.

    Whole chunks are reused, each from one asking to the next, and it has its place all the while in between. The most such spans that at
    no time take more than all places are found by giving up, where there are too many, the one whose next use is farthest away (Belady
    1966). That a chunk is worth nothing without those before it can only make a policy's count smaller.
    """
    places, reused = kept // chunk, 0
    holding: dict[tuple[int, ...], int] = {}
    uses = _next_uses(prompts, chunk)
    for asking, chunks in enumerate(uses):
        for key in chunks:
            if holding.get(key) == asking:
                reused += 1
                del holding[key]
        holding |= {key: following for key, following in chunks.items() if following is not None}
        while len(holding) > places:
            del holding[max(holding, key=lambda key: holding[key])]
    return reused * chunk


def _next_uses(prompts: Sequence[Sequence[int]], chunk: int) -> list[dict[int, int | None]]:
    """For each asking, the chunks that it can reuse or leave behind, with the asking that reuses each next."""
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    following: dict[int, int] = {}
    uses: list[dict[int, int | None]] = []
    for asking in range(len(prompts) - 1, -1, -1):
        prompt, before, chunks = prompts[asking], -1, {}
        for start in range(0, len(prompt) - chunk + 1, chunk):
            before = numbers.setdefault((before, tuple(prompt[start : start + chunk])), len(numbers))
            chunks[before] = following.get(before)
            # The last token is computed whatever is kept, and with it the chunk that it ends.
            if start + chunk < len(prompt):
                following[before] = asking
        uses.append(chunks)
    return uses[::-1]
