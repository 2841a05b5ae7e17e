"""A forward reads the pages of its own positions, those before its window left out, and nothing behind its end."""

import pytest
import torch

from harness.core.bits import first_divergence
from harness.tier.protocol import Tier
from harness.tier.reference.config import NetworkConfig
from harness.tier.reference.executor import Work
from tests.tier.paged import CHUNK, feed, prompt, tables

PROMPT = prompt(200)


def check_unread(executor, pick):
    """The chunk from position 160 on gives the same bits after NaN went to the pages (tier page, from token) that `pick` names."""
    placed = tables(executor, 192)
    feed(executor, PROMPT[:160], placed)
    work = Work(PROMPT[160 : 160 + CHUNK], 160, placed, want_logits=True)
    before = executor.forward(work).take()
    for page, behind in pick(placed):
        executor.poison(Tier.DEVICE, [page], behind)
    after = executor.forward(work).take()

    assert first_divergence(after.logits, before.logits) is None
    assert after.finite


def before_the_window(placed):
    # The first position that the window of 160 shows is 129, in page 8.
    return [(page, 0) for page in placed["sliding"][:8]]


def of_nobody(placed):
    held = {page for table in placed.values() for page in table}
    return [(page, 0) for page in range(64) if page not in held]


@pytest.mark.parametrize("pick", [before_the_window, of_nobody])
def test_pages_that_are_not_attended_to_are_not_read(executor, pick):
    check_unread(executor, pick)


@pytest.mark.parametrize("group", ["sliding", "full"])
def test_a_page_that_is_attended_to_is_seen(executor, group):
    with pytest.raises(AssertionError):
        check_unread(executor, lambda placed: [(placed[group][9], 0)])


def test_a_window_that_shows_one_more_is_seen(executor, monkeypatch):
    first = NetworkConfig.first
    monkeypatch.setattr(NetworkConfig, "first", lambda self, group, start: max(0, first(self, group, start) - 16))
    with pytest.raises((AssertionError, RuntimeError)):
        check_unread(executor, before_the_window)


def test_what_lies_behind_the_end_is_not_read(executor):
    placed = tables(executor, 48)
    feed(executor, PROMPT[:32], placed)
    work = Work(PROMPT[32:37], 32, placed, want_logits=True)
    before = executor.forward(work).take()
    for table in placed.values():
        executor.poison(Tier.DEVICE, [table[2]], behind=5)
    after = executor.forward(work).take()

    assert first_divergence(after.logits, before.logits) is None
    assert after.finite


def test_poison_before_the_end_is_seen(executor):
    placed = tables(executor, 48)
    feed(executor, PROMPT[:37], placed)
    executor.poison(Tier.DEVICE, [placed["full"][2]], behind=4)

    assert not executor.forward(Work((PROMPT[37],), 37, placed)).take().finite


def test_a_forward_writes_its_own_positions_alone(executor):
    placed = tables(executor, 48)
    before = executor.pools[Tier.DEVICE].kept.clone()
    feed(executor, PROMPT[:37], placed)
    after = executor.pools[Tier.DEVICE].kept
    changed = (after != before).flatten(4).any(-1)  # [pages, layers, 2, tokens]

    for table in placed.values():
        assert changed[table].permute(1, 2, 0, 3).flatten(2).sum(-1).unique().tolist() == [37]
        assert not changed[table[2], :, :, 5:].any()
    assert int(changed.sum()) == 2 * 2 * 37
    assert torch.equal(after[of_nobody(placed)[0][0]], before[0])
