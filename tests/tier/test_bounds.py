"""What page arithmetic allows, against examples and against every way to keep a few prompts."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.tier.bounds import best_cached, most_cached, shared
from harness.tier.oracle import Oracle
from harness.tier.protocol import Group, Policy


@pytest.mark.parametrize(
    ("tokens", "page", "seen", "most"),
    [
        (581, 16, None, 576),
        (1, 16, None, 0),
        (16, 16, None, 0),
        (17, 16, None, 16),
        (17, 16, 15, 0),
        (40, 16, 33, 32),
        (40, None, None, 39),
        (9, None, 4, 4),
    ],
)
def test_most_cached(tokens, page, seen, most):
    """Whole pages before the last token, as far as they were seen before."""
    assert most_cached(tokens, page, seen) == most


@pytest.mark.parametrize(("one", "two", "both"), [((1, 2, 3), (1, 2, 4), 2), ((), (1,), 0), ((1, 2), (1, 2, 3), 2), ((1,), (2,), 0)])
def test_shared(one, two, both):
    assert shared(one, two) == both


def test_best_is_beladys():
    """Of three prompts in turn with room for two, one is kept for good: each round hits it, and one more where they meet."""
    prompts = [(letter, letter, 0) for letter in (1, 2, 3)]

    assert best_cached(prompts * 2, chunk=2, kept=6) == 3 * 2
    assert best_cached(prompts * 2, chunk=2, kept=4) == 2 * 2
    assert best_cached(prompts * 2, chunk=2, kept=2) == 1 * 2
    assert best_cached(prompts * 2, chunk=2, kept=1) == 0
    assert best_cached([(1, 1)] * 2, chunk=2, kept=9) == 0, "the last token is computed"


def exhaustive(prompts, kept):
    """The same count for prompts of one-token chunks, by trying every set that may be kept after each."""
    states = {frozenset(): 0}
    for prompt in prompts:
        chunks = [prompt[: end + 1] for end in range(len(prompt))]
        following = {}
        for holding, count in states.items():
            hits = sum(chunk in holding for chunk in chunks[:-1])
            there = sorted(holding | set(chunks))
            for size in range(min(kept, len(there)) + 1):
                for some in combinations(there, size):
                    key = frozenset(some)
                    following[key] = max(following.get(key, 0), count + hits)
        states = following
    return max(states.values())


SOME_PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3).map(tuple), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SOME_PROMPTS, st.integers(0, 3))
def test_best_is_what_every_way_is_tried_for(prompts, kept):
    assert best_cached(prompts, chunk=1, kept=kept) == exhaustive(prompts, kept)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SOME_PROMPTS, st.integers(4, 7), st.integers(0, 3))
def test_no_policy_exceeds_it(prompts, device, host):
    """The oracle of a policy stays below, with its room in both tiers together."""
    model = Oracle(Policy(1, 1, device, host, (Group("full", None),), 1))
    reused = 0
    for handle, prompt in enumerate(prompts):
        model.submit(handle, prompt, 1)
        while not model.done(handle):
            model.pump()
        reused += model.hits(handle).total

    assert reused <= best_cached(prompts, chunk=1, kept=device + host)
