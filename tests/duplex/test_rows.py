"""The rows of an encoder, a decoder and a language model are strangers: bit for bit, whatever the others are, hear, hold or miss."""

import pytest
import torch

from harness.duplex.reference import codec, ring
from harness.duplex.reference.layers import Layer
from harness.duplex.reference.ring import RingKV
from tests.duplex.networks import TICKS, Stream, agree, patched, small

KINDS = ["encoder", "decoder", "language"]
MODEL = small()


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def neighbours(kind):
    """What the other rows hear does not matter."""
    one = Stream(kind, MODEL)
    here = one.inputs()
    outputs = one.run(here)
    for row in (0, 3, 7):
        two = Stream(kind, MODEL)
        there = two.inputs(seed=99)
        there[row] = here[row]

        agree(two.run(there)[row], outputs[row])
        two.same([row], one, [row])


def places(kind):
    """Which row of a tile it is does not matter."""
    one, two = Stream(kind, MODEL), Stream(kind, MODEL)
    order = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    inputs = one.inputs()

    agree(two.run(inputs[order]), one.run(inputs)[order])
    two.same(range(8), one, order.tolist())


def batch_sizes(kind):
    """How many tiles there are, and in which of them it is, does not matter."""
    one, three = Stream(kind, MODEL), Stream(kind, MODEL, rows=24)
    inputs, others = one.inputs(), Stream(kind, MODEL).inputs(seed=77)
    expected = one.run(inputs)
    outputs = three.run(torch.cat((others, inputs.flip(0), inputs)))

    agree(outputs[8:16], expected.flip(0))
    agree(outputs[16:], expected)
    three.same(range(8, 16), one, range(7, -1, -1))


def absences(kind):
    """A row that misses ticks goes on as if they had not been."""
    one, two = Stream(kind, MODEL), Stream(kind, MODEL)
    inputs = one.inputs(ticks=2 * TICKS)
    present = torch.ones(8, 2 * TICKS, dtype=torch.bool)
    present[2, 3:9] = present[2, 12] = present[5, :4] = False
    outputs = one.run(inputs, present)
    for row in (2, 5):
        kept = present[row]
        alone = two.inputs(ticks=int(kept.sum()))
        alone[row] = inputs[row, kept]
        fresh = Stream(kind, MODEL)

        agree(fresh.run(alone)[row], outputs[row, kept])
        one.same([row], fresh, [row])


def resets(kind):
    """A row made new holds nothing of what it held, were it NaN, and its neighbours keep what they hold."""
    used, spared, fresh = Stream(kind, MODEL), Stream(kind, MODEL), Stream(kind, MODEL)
    inputs, later = used.inputs(), used.inputs(seed=6)
    used.run(inputs)
    spared.run(inputs)
    for part in used.parts(4)[1:]:
        part.fill_(torch.nan if part.is_floating_point() else 3)
    rows = torch.zeros(8, dtype=torch.bool)
    rows[4] = True
    used.state.reset(rows)
    used.same([4], fresh, [4])
    outputs = used.run(later)

    agree(outputs[4], fresh.run(later)[4])
    used.same([4], fresh, [4])
    agree(outputs[rows.logical_not()], spared.run(later)[rows.logical_not()])


def lost_neighbours(kind):
    """A neighbour all of NaN, active or not, and NaN in the trash reach nobody."""
    lost, sound = Stream(kind, MODEL), Stream(kind, MODEL)
    inputs, later = lost.inputs(), lost.inputs(seed=6)
    lost.run(inputs)
    sound.run(inputs)
    gone = torch.zeros(8, dtype=torch.bool)
    gone[0] = gone[6] = True
    lost.state.poison(gone)
    if kind == "encoder":
        later[gone] = torch.nan
    present = torch.ones(8, TICKS, dtype=torch.bool)
    present[6] = False
    outputs = lost.run(later, present)

    agree(outputs[~gone], sound.run(torch.where(torch.isfinite(later), later, 0), present)[~gone])


def masked_cells(kind):
    """What lies behind the mask of a young row is not read: nor what poison puts there."""
    spoilt, sound = Stream(kind, MODEL), Stream(kind, MODEL)
    inputs = spoilt.inputs()
    spoilt.run(inputs[:, :2])
    sound.run(inputs[:, :2])
    spoilt.state.poison(torch.zeros(8, dtype=torch.bool))

    agree(spoilt.run(inputs[:, 2:]), sound.run(inputs[:, 2:]))
    spoilt.same(range(8), sound, range(8))


def moves(kind):
    """Rows that are moved, also between tiles, take all that they hold along."""
    moved, still = Stream(kind, MODEL, rows=16), Stream(kind, MODEL, rows=16)
    inputs, later = moved.inputs(), moved.inputs(seed=6)
    moved.run(inputs)
    still.run(inputs)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    moved.state.permute(order)

    agree(moved.run(later[order]), still.run(later)[order])
    moved.same(range(16), still, order.tolist())


CHECKS = [neighbours, places, batch_sizes, absences, resets, lost_neighbours, masked_cells, moves]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_rows(check, kind):
    check(kind)


def overheard(layer, x, attended, *room):
    """As Layer.finish, with a little of row 0 in all."""
    return FINISH(layer, x, attended, *room) + 1e-6 * x[0]


def untold(rings, active):
    rings.positions.add_(1)


def positions_only(rings, row):
    rings.positions[row] = 0


def one_more(positions, cells):
    return cells <= positions[:, None] + 1


def kept_anyway(carries, after, active):
    for carry, later in zip(carries, after, strict=True):
        carry.copy_(later)


def keys_left_behind(rings):
    yield rings.positions


FINISH = Layer.finish
WRONG = [
    (neighbours, Layer, "finish", overheard, KINDS),
    (places, Layer, "finish", overheard, KINDS),
    (batch_sizes, Layer, "finish", overheard, KINDS),
    (moves, RingKV, "parts", keys_left_behind, KINDS),
    (lost_neighbours, Layer, "finish", overheard, KINDS),
    (absences, RingKV, "advance", untold, KINDS),
    (absences, codec, "keep", kept_anyway, ["encoder", "decoder"]),
    (resets, RingKV, "reset", positions_only, KINDS),
    (resets, codec.CodecRows, "reset", lambda rows, row: rows.ring.reset(row), ["encoder", "decoder"]),
    (masked_cells, ring, "visible", one_more, KINDS),
]


@pytest.mark.parametrize(
    ("check", "owner", "name", "wrong", "kind"),
    [
        pytest.param(check, owner, name, wrong, kind, id=f"{check.__name__}-{name}-{kind}")
        for check, owner, name, wrong, kinds in WRONG
        for kind in kinds
    ],
)
def test_wrong_networks_are_seen(check, owner, name, wrong, kind):
    with patched(owner, name, wrong), pytest.raises(AssertionError):
        check(kind)


def test_a_batch_that_is_no_multiple_of_a_tile_is_refused():
    with pytest.raises(ValueError, match="rows = 12 is not a multiple of the 8 rows"):
        MODEL.init_state(12)
