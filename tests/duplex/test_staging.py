"""The delay ring: each token reaches its column, whatever the ring's phase, and nobody else's."""

import pytest
import torch

from harness.duplex.reference.config import DELAYS, MAX_DELAY, ROWS
from harness.duplex.reference.staging import NOBODY, RING, Mark, Marks, Staging

INITIAL = torch.full((ROWS,), 1000)
ROWS_OF_BATCH = 3


def frame(number):
    """The tokens of frame `number` in each row of the batch, told apart by row and codebook."""
    return number * 10_000 + torch.arange(ROWS_OF_BATCH)[:, None] * 100 + torch.arange(ROWS)


def expected_column(number):
    """Column `number` of frames that were all staged: row k is of frame number - DELAYS[k]."""
    early = torch.tensor(DELAYS) > number
    return torch.where(early, INITIAL, torch.stack([frame(number - delay)[:, k] for k, delay in enumerate(DELAYS)], 1))


def run(staging, bases, ticks):
    """Stage frame after frame, each column settled as it was given; of every tick what stands before its column, it, and the frame it completes."""
    active, seen = torch.ones(ROWS_OF_BATCH, dtype=torch.bool), []
    for tick in range(ticks):
        cursor = (torch.tensor(bases) + tick) % RING
        position = torch.full((ROWS_OF_BATCH,), min(tick, MAX_DELAY))
        staging.stage(cursor, active, frame(tick), torch.ones(ROWS_OF_BATCH, ROWS, dtype=torch.bool))
        before = staging.before(cursor, position == 0)
        column, given = staging.waiting(cursor, position)
        assert given.all()
        staging.settle(cursor, active, column)
        seen.append((before, column, staging.frame(cursor)))
    return seen


@pytest.fixture
def staging():
    return Staging(ROWS_OF_BATCH, INITIAL)


@pytest.mark.parametrize("bases", [(0, 0, 0), (0, 1, 2), (2, 0, 1)])
def test_every_token_reaches_its_column(staging, bases):
    """At every phase of the ring, and once it has wrapped."""
    seen = run(staging, bases, 3 * RING)

    for tick, (before, column, complete) in enumerate(seen):
        assert torch.equal(column, expected_column(tick))
        assert torch.equal(before, expected_column(tick - 1) if tick else INITIAL.expand(ROWS_OF_BATCH, ROWS))
        if tick >= MAX_DELAY:
            assert torch.equal(complete, frame(tick - MAX_DELAY))


def test_a_token_in_the_wrong_column_is_seen(staging):
    """The twin: a row whose cursor is one off."""
    run(staging, (0, 0, 0), 4)
    tokens, _ = staging.waiting(torch.tensor([4, 4, 5]) % RING, torch.full((3,), MAX_DELAY))

    expected = staging.waiting(torch.tensor([4, 4, 4]) % RING, torch.full((3,), MAX_DELAY))[0]
    assert torch.equal(tokens[:2], expected[:2])
    assert not torch.equal(tokens[2], expected[2])


def test_an_inactive_row_keeps_what_it_has(staging):
    run(staging, (0, 1, 2), 4)
    tokens, provided = staging.tokens.clone(), staging.provided.clone()
    cursor, active = torch.ones(3, dtype=torch.int64), torch.tensor([True, False, True])
    staging.stage(cursor, active, frame(9), torch.ones(3, ROWS, dtype=torch.bool))
    staging.settle(cursor, active, frame(9))

    assert torch.equal(staging.tokens[1], tokens[1])
    assert torch.equal(staging.provided[1], provided[1])
    assert not torch.equal(staging.tokens[0], tokens[0])


def test_what_was_not_given_is_to_be_decided(staging):
    """The flags of a column are gone once it is settled, so that they are not taken for those of the next in its place."""
    cursor, active = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool)
    given = torch.zeros(3, ROWS, dtype=torch.bool)
    given[:, 0] = True
    staging.stage(cursor, active, frame(0), given)

    _, flags = staging.waiting(cursor, torch.full((3,), MAX_DELAY))
    assert flags[:, 0].all()
    assert not flags[:, 1:].any()
    staging.settle(cursor, active, frame(0))
    assert not staging.waiting(cursor, torch.full((3,), MAX_DELAY))[1].any()


def test_a_reset_row_is_as_new(staging):
    run(staging, (0, 1, 2), 4)
    others = staging.tokens[[0, 2]].clone()
    staging.reset(torch.tensor([False, True, False]))

    new = Staging(ROWS_OF_BATCH, INITIAL)
    assert torch.equal(staging.tokens[1], new.tokens[1])
    assert not staging.provided[1].any()
    assert torch.equal(staging.tokens[[0, 2]], others)


@pytest.mark.parametrize("base", range(RING))
def test_a_snapshot_is_turned_to_the_rows_phase(staging, base):
    """What it holds of column c is found where the row keeps column c."""
    snapshot = torch.arange(ROWS * RING).view(ROWS, RING)
    staging.restore(1, base, snapshot)

    for column in range(RING):
        cursor = torch.full((3,), (base + column) % RING)
        assert torch.equal(staging.waiting(cursor, torch.full((3,), MAX_DELAY))[0][1], snapshot[:, column])
    assert torch.equal(staging.tokens[1], snapshot) == (base == 0)


def test_rows_move_with_all_they_hold(staging):
    run(staging, (0, 1, 2), 4)
    tokens, provided = staging.tokens.clone(), staging.provided.clone()
    staging.move(torch.tensor([2, 0, 1]))

    assert torch.equal(staging.tokens, tokens[[2, 0, 1]])
    assert torch.equal(staging.provided, provided[[2, 0, 1]])
    assert not torch.equal(staging.tokens, tokens)


def test_a_mark_is_of_the_frame_that_a_column_completes():
    """It comes back MAX_DELAY ticks later, in its own slot."""
    marks = Marks(2)
    marks.put(1, 0, Mark(3, True, 5))

    assert marks.complete(1, MAX_DELAY % RING) == Mark(3, True, 5)
    assert marks.complete(0, MAX_DELAY % RING) == NOBODY == marks.complete(1, (MAX_DELAY + 1) % RING)
