"""Who sits where, and what moves with whom."""

import pytest
import torch

from harness.duplex.protocol import Session
from harness.duplex.reference.prompt import Prompt
from harness.duplex.reference.slots import RowTable, Slots
from harness.duplex.reference.staging import RING

PROMPT = Prompt(0, 2, (0, 0, 0))


@pytest.fixture
def slots():
    return Slots(4, 8)


def noise(draws):
    """The next eight draws."""
    drawn = torch.empty(8)
    draws.fill(drawn)
    return drawn


def test_epochs_count_the_occupants_of_a_slot(slots):
    epochs = []
    for _ in range(3):
        epochs.append(slots.seat(1, Session(), PROMPT, tick=0).epoch)
        slots.vacate(1)

    assert epochs == [0, 1, 2]
    assert slots.seat(2, Session(), PROMPT, tick=0).epoch == 0


def test_a_cursor_goes_on_from_the_engines_tick(slots):
    """From there it moves with the occupant's own ticks."""
    occupant = slots.seat(0, Session(), PROMPT, tick=7)
    cursors = []
    for _ in range(RING + 1):
        cursors.append(occupant.cursor)
        occupant.took_part(live=False)

    assert cursors == [(7 + tick) % RING for tick in range(RING + 1)]


def test_prefill_is_over_after_its_steps(slots):
    occupant = slots.seat(0, Session(), PROMPT, tick=0)
    phases = []
    for _ in range(4):
        phases.append(occupant.in_prefill)
        occupant.took_part(live=False)

    assert phases == [True, True, True, False]


def test_the_first_free_slot_is_taken(slots):
    for slot in (0, 1, 3):
        slots.seat(slot, Session(), PROMPT, tick=0)
    assert (slots.free(), slots.occupied()) == (2, [0, 1, 3])

    slots.seat(2, Session(), PROMPT, tick=0)
    assert (slots.free(), slots.unoccupied) == (None, 0)
    for _ in range(2):
        slots.vacate(1)
        assert (slots.free(), slots.unoccupied) == (1, 1)


def test_draws_come_from_the_seed_alone():
    table, other = RowTable(4, 8), RowTable(4, 8)
    table.seat(0, 5)
    table.seat(1, 6)
    other.seat(3, 5)
    ours, theirs = noise(table.draws(0)), noise(other.draws(3))

    assert torch.equal(ours, theirs)
    assert not torch.equal(noise(table.draws(1)), theirs)
    assert not torch.equal(noise(table.draws(0)), ours)


def test_draws_leave_with_their_session(slots):
    slots.seat(2, Session(seed=5), PROMPT, tick=0)
    assert len(slots.table) == 1

    slots.vacate(2)
    slots.seat(2, Session(), PROMPT, tick=0)
    assert slots.table.draws(2) is None
    assert len(slots.table) == 0


def test_draws_move_with_their_row_and_stay_nowhere_else():
    """Slots 0 and 2 to the front; the returned order says which row each came from."""
    table = RowTable(4, 8)
    table.seat(0, 5)
    table.seat(2, 6)
    first, second = table.draws(0), table.draws(2)
    order = table.arrange([2, 0, 1, 3])

    assert order == [2, 0, 1, 3, 4, 5, 6, 7]
    assert table.row_of == [1, 2, 0, 3]
    assert [table.draws(row) for row in range(4)] == [second, first, None, None]


def test_arranging_twice_goes_on_from_where_the_rows_are():
    table = RowTable(3, 8)
    contents = list(range(8))
    for slots in ([2, 0, 1], [1, 2, 0], [0, 1, 2]):
        contents = [contents[row] for row in table.arrange(slots)]
        assert [contents[table.row_of[slot]] for slot in range(3)] == [0, 1, 2]
