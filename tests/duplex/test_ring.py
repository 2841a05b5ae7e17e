"""A ring sees the last `context` positions of each row at its own position."""

import pytest
import torch

from harness.duplex.reference import ring
from harness.duplex.reference.config import TransformerConfig
from harness.duplex.reference.ring import RingKV
from tests.duplex.networks import patched

CONFIG = TransformerConfig(4, 1, 2, 4, context=5)
ROWS = 3


def visits(ticks=14):
    """Write 1 + 100 * row + position everywhere; after each tick (row, position, what the row sees)."""
    rings = RingKV(CONFIG, ROWS, "cpu", torch.float32)
    seen = []
    for tick in range(ticks):
        active = torch.tensor([True, tick % 3 != 1, tick > 6])
        visit = rings.visit(active)
        names = 1 + 100 * torch.arange(ROWS) + visit.positions
        written = names.float()[:, None, None].expand(ROWS, 1, 4)
        for layer in range(CONFIG.layers):
            keys, values = rings.write(layer, visit.cells, written, -written)
            for row in active.nonzero().flatten().tolist():
                shown = visit.mask[row, 0, 0] == 0
                seen.append((row, int(visit.positions[row]), sorted(keys[row, 0, shown, 0].tolist())))
                assert torch.equal(keys, -values)
        rings.advance(active)
    return seen


def check_window():
    for row, position, names in visits():
        window = range(max(0, position - CONFIG.context + 1), position + 1)
        assert names == [1.0 + 100 * row + held for held in window], f"row {row}, position {position}"


def test_a_row_sees_the_last_positions_of_its_own():
    check_window()
    assert max(position for _, position, _ in visits()) >= 2 * CONFIG.context


@pytest.mark.parametrize(
    "wrong",
    [
        lambda positions, cells: cells < positions[:, None],
        lambda positions, cells: cells <= positions[:, None] + 1,
        lambda positions, cells: cells <= positions.max(),
        lambda positions, cells: (cells <= positions[:, None]) & (cells != (positions[:, None] + 1) % 5),
    ],
    ids=["not-itself", "one-more", "the-oldest-row's", "one-less-behind-the-wrap"],
)
def test_wrong_masks_are_seen(wrong):
    with patched(ring, "visible", lambda positions, cells: wrong(positions, cells).expand(ROWS, -1)), pytest.raises(AssertionError):
        check_window()


VISIT = RingKV.visit


def test_a_shared_position_is_seen():
    def shared(rings, active):
        rings.positions = rings.positions.clone().fill_(rings.positions.max())
        return VISIT(rings, active)

    with patched(RingKV, "visit", shared), pytest.raises(AssertionError):
        check_window()


def test_an_inactive_row_writes_to_the_trash_and_stays():
    rings = RingKV(CONFIG, ROWS, "cpu", torch.float32)
    visit = rings.visit(torch.tensor([False, True, False]))
    rings.write(0, visit.cells, torch.ones(ROWS, 1, 4), torch.ones(ROWS, 1, 4))
    rings.advance(torch.tensor([False, True, False]))

    assert rings.positions.tolist() == rings.written.tolist() == [0, 1, 0]
    assert rings.keys[0].flatten(1).any(1).nonzero().flatten().tolist() == [CONFIG.context, ROWS * CONFIG.context]


def test_poison_is_finite_where_it_is_multiplied_by_a_weight_of_0():
    rings = RingKV(CONFIG, ROWS, "cpu", torch.float32)
    rings.positions[:] = rings.written[:] = torch.tensor([2, 9, 4])
    rings.poison([False, False, True])
    values = rings.values[1][:-1].view(ROWS, CONFIG.context, 4)

    assert values[0, :, 0].tolist() == [0, 0, ring.POISON, ring.POISON, ring.POISON]
    assert not values[1].any()
    assert values[2].isnan().all()
    assert rings.values[1][-1].isnan().all()
    assert rings.positions.tolist() == rings.written.tolist() == [2, 9, 4]
