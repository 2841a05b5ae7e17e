"""Which heads go from which rank to which: against an oracle that carries labelled heads about."""

import pytest

from harness.transfer.reference.heads import HeadPlan, Piece

SIZES = range(1, 17)
PLANS = [
    (total, source, target)
    for total in SIZES
    for source in SIZES
    for target in SIZES
    if max(total, source) % min(total, source) == 0 and max(total, target) % min(total, target) == 0
]


def dealt(total, ranks):
    """The oracle of who holds what: heads dealt out evenly in order; with more ranks than heads, each head to as many ranks in a row."""
    hands = [[] for _ in range(ranks)]
    deals = max(total, ranks)
    for deal in range(deals):
        hands[deal * ranks // deals].append(deal * total // deals)
    return hands


def carried(plan, total, source_tp, target_tp, pieces_of=None):
    """Do what the plan says, head by head: for each target rank, the labels at its places, as often as they were put there."""
    held, arrived = dealt(total, source_tp), []
    for target in range(target_tp):
        places = [[] for _ in dealt(total, target_tp)[target]]
        for piece in (pieces_of or plan.received_by)(target):
            assert piece.target_rank == target
            for n in range(piece.count):
                places[piece.target_head + n].append(held[piece.source_rank][piece.source_head + n])
        arrived.append(places)
    return arrived


def wanted(total, target_tp):
    return [[[head] for head in hand] for hand in dealt(total, target_tp)]


def test_every_head_reaches_its_place_once():
    """For all sizes up to 16 that divide, copies on either side, on both, or on none."""
    wrong = [sizes for sizes in PLANS if carried(HeadPlan(*sizes), *sizes) != wanted(sizes[0], sizes[2])]
    assert len(PLANS) == 610
    assert wrong == []


def test_the_oracle_notices_heads_in_another_order():
    """The twin: what the same rank takes from the other half of its sender's heads is not what it wants."""
    plan = HeadPlan(4, 1, 2)
    swapped = lambda target: [Piece(p.source_rank, target, 2 - p.source_head, p.target_head, p.count) for p in plan.received_by(target)]  # noqa: E731
    assert carried(plan, 4, 1, 2) == wanted(4, 2) != carried(plan, 4, 1, 2, swapped)


def test_senders_and_receivers_reckon_alike():
    """What is sent is what is received, each piece once, and one piece for each pair of ranks: they share one key."""
    for total, source, target in PLANS:
        plan = HeadPlan(total, source, target)
        sent = [piece for rank in range(source) for piece in plan.sent_by(rank)]
        received = [piece for rank in range(target) for piece in plan.received_by(rank)]
        assert sorted(sent, key=repr) == sorted(received, key=repr)
        pairs = [(piece.source_rank, piece.target_rank) for piece in sent]
        assert len(set(pairs)) == len(pairs)


def test_alike_stages_send_rank_to_rank():
    """Nobody's heads cross over, copies or not: the whole of rank r goes to rank r."""
    for total, ranks in {(total, source) for total, source, target in PLANS if source == target}:
        plan = HeadPlan(total, ranks, ranks)
        for rank in range(ranks):
            assert plan.received_by(rank) == [Piece(rank, rank, 0, 0, max(1, total // ranks))]


def test_holders_of_copies_take_turns():
    """Of the ranks that hold a head none gives it to two receivers more than another does."""
    for total, source, target in ((t, s, r) for t, s, r in PLANS if s > t):
        plan, copies = HeadPlan(total, source, target), source // total
        given = [len(plan.sent_by(rank)) for rank in range(source)]
        for head in range(total):
            holders = given[head * copies : (head + 1) * copies]
            assert max(holders) - min(holders) <= 1


@pytest.mark.parametrize(
    ("sizes", "rank", "pieces"),
    [
        ((4, 1, 2), 1, [Piece(0, 1, 2, 0, 2)]),
        ((4, 2, 1), 0, [Piece(0, 0, 0, 0, 2), Piece(1, 0, 0, 2, 2)]),
        ((2, 8, 1), 0, [Piece(0, 0, 0, 0, 1), Piece(4, 0, 0, 1, 1)]),
        ((2, 1, 8), 5, [Piece(0, 5, 1, 0, 1)]),
    ],
    ids=["split", "joined", "8 to 1, copies", "1 to 8, copies"],
)
def test_pieces_as_written_out(sizes, rank, pieces):
    """By hand, for the ratios that deployments use."""
    assert HeadPlan(*sizes).received_by(rank) == pieces


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((6, 4, 2), "6 KV heads do not divide over source_tp = 4"),
        ((4, 2, 6), "4 KV heads do not divide over target_tp = 6"),
        ((0, 1, 1), "0 KV heads over source_tp = 1"),
        ((4, 1, 0), "4 KV heads over target_tp = 0"),
    ],
)
def test_heads_that_do_not_divide_are_refused(sizes, said):
    """The text names the option."""
    with pytest.raises(ValueError, match=said):
        HeadPlan(*sizes)


@pytest.mark.parametrize("rank", [-1, 2])
def test_ranks_outside_their_stage_are_refused(rank):
    """Such a rank would ask for heads that nobody holds, or send nothing at all."""
    plan = HeadPlan(4, 2, 2)
    with pytest.raises(ValueError, match=f"tp_rank = {rank} of a stage of target_tp = 2"):
        plan.received_by(rank)
    with pytest.raises(ValueError, match=f"tp_rank = {rank} of a stage of source_tp = 2"):
        plan.sent_by(rank)
