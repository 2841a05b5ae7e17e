"""Receiving into the receiver's own pages, without the tokens that it has, and several branches by one deadline."""

import pytest
import torch

from harness.core.clock import TICK
from harness.transfer.protocol import Completion, CompletionOutcome, KVPayload, Outcome, Pages
from harness.transfer.workload import Workload
from tests.transfer.paged import LAYOUTS, cache, copied, holds, row, same, untouched

WORK = Workload()
SENDER = WORK.endpoint
TABLE, OWN = [4, 0, 2], [5, 1, 3]
"""The sender's block table, and the receiver's."""


@pytest.fixture(params=["packed-nhd-float32", "packed-hnd-bfloat16", "split-nhd-float8_e4m3fn", "split-hnd-float32"])
def layout(request):
    return LAYOUTS[request.param]


@pytest.fixture
def sides(stage, layout):
    return stage.deploy(layout=layout, sends=True, receives=False), stage.deploy(layout=layout)


def received_by_hand(layout, target, source, skip, tokens):
    """The oracle: the target's pages with tokens `skip` to `tokens` carried over one by one."""
    target = copied(target)
    for layer in range(layout.layers):
        for part in (0, 1):
            for token in range(skip, tokens):
                given = row(layout, source, layer, part, TABLE, token).contiguous().view(torch.uint8)
                row(layout, target, layer, part, OWN, token).view(torch.uint8).copy_(given)
    return target


@pytest.mark.parametrize("skip", [0, 1, 4, 9, 10])
def test_pages_receive_their_rows_and_nothing_else_changes(stage, layout, sides, skip):
    """Whatever is skipped, token t goes where token t belongs; what was delivered counts the rows behind the skipped ones."""
    source, target = cache(layout), cache(layout, seed=50)
    want = received_by_hand(layout, target, source, skip, 10)
    sides[0].send("r", source, TABLE, 10)
    delivery = sides[1].receive("r", SENDER, 0.0, into=Pages(target, OWN), skip_tokens=skip)
    assert (delivery.outcome, delivery.payload, delivery.valid_tokens) == (Outcome.HIT, None, 10 - skip)
    assert delivery.metadata["seq_len"] == 10
    assert untouched(target, want)
    assert stage.wire.usage()["segments"] == 0


@pytest.mark.parametrize("how", ["prefetch", "receive"])
@pytest.mark.parametrize("skip", [0, 3, 10])
def test_skipped_tokens_are_not_delivered(layout, sides, how, skip):
    """The rows begin at the first token that was not skipped; none is left where all were."""
    source = cache(layout)
    sides[0].send("r", source, TABLE, 10)
    if how == "prefetch":
        sides[1].start_prefetch("r", SENDER, skip_tokens=skip)
        delivery = sides[1].consume("r")
    else:
        delivery = sides[1].receive("r", SENDER, 0.0, skip_tokens=skip)
    assert (delivery.outcome, delivery.valid_tokens, len(delivery.payload.keys[0])) == (Outcome.HIT, 10 - skip, 10 - skip)
    assert holds(layout, source, TABLE, delivery.payload, first=skip)
    assert holds(layout, source, TABLE, delivery.payload, first=skip - 1) is (skip == 10)


def test_what_one_call_skips_the_next_does_not(layout, sides):
    """Each call says for itself what its request has."""
    source = cache(layout)
    for skip in (3, 0):
        sides[0].send("r", source, TABLE, 10)
        delivery = sides[1].receive("r", SENDER, 0.0, skip_tokens=skip)
        assert holds(layout, source, TABLE, delivery.payload, first=skip)


def spoil(stage, how):
    """Something that keeps a payload from being delivered."""
    if how == "damaged":
        stage.wire.damage("flip")
    elif how == "copy fails":
        stage.engine.lab.fail_next("copy")
    elif how == "connector fails":
        stage.wire.fail("get")


@pytest.mark.parametrize(
    ("how", "ids", "skip", "said"),
    [
        ("damaged", OWN, 0, "bytes changed on the way"),
        ("copy fails", OWN, 0, "copy failed"),
        ("connector fails", OWN, 0, "get of"),
        ("no room", [5, 1], 0, "10 tokens for 2 blocks, which hold 8"),
        ("no room behind what was skipped", [5, 1], 8, "10 tokens for 2 blocks, which hold 8"),
        ("no such block", [5, 1, 6], 0, "block ids [6] outside"),
        ("a block twice", [5, 1, 5], 0, "name a block twice"),
        ("more skipped than sent", OWN, 11, "skip_tokens = 11 of a payload of 10 tokens"),
    ],
)
def test_pages_stay_as_they_are_unless_it_is_a_hit(stage, layout, sides, how, ids, skip, said):
    """Every bit of them; the payload stays, and is received when nothing is wrong any more."""
    source, target = cache(layout), cache(layout, seed=50)
    before, want = copied(target), received_by_hand(layout, target, source, 0, 10)
    sides[0].send("r", source, TABLE, 10)
    spoil(stage, how)
    delivery = sides[1].receive("r", SENDER, 0.0, into=Pages(target, ids), skip_tokens=skip)
    assert (delivery.outcome, delivery.payload, delivery.size, delivery.valid_tokens) == (Outcome.FAILED, None, 0, 0)
    assert said in delivery.reason
    assert untouched(target, before)
    assert sides[1].usage()["landing_bytes"] == 0

    stage.wire.mend()
    assert sides[1].receive("r", SENDER, 0.0, into=Pages(target, OWN)).outcome is Outcome.HIT
    assert untouched(target, want)


def test_pages_stay_as_they_are_on_a_miss(layout, sides):
    """Nothing came."""
    target = cache(layout)
    before = copied(target)
    assert sides[1].receive("r", SENDER, 0.0, into=Pages(target, OWN)).outcome is Outcome.MISS
    assert untouched(target, before)


@pytest.mark.parametrize("call", ["receive", "start_prefetch"])
def test_fewer_than_no_tokens_cannot_be_skipped(stage, receiver, call):
    """Told before anything is begun."""
    arguments = (0.0,) if call == "receive" else ()
    with pytest.raises(ValueError, match="skip_tokens = -1"):
        getattr(receiver, call)("r", SENDER, *arguments, skip_tokens=-1)
    assert receiver.completions() == []
    assert stage.wire.calls() == []


def test_a_prefetch_that_skips_too_much_fails(stage, receiver):
    """With the reason, and nothing held."""
    stage.send("r")
    receiver.start_prefetch("r", SENDER, skip_tokens=11)
    delivery = receiver.consume("r")
    assert (delivery.outcome, delivery.reason) == (Outcome.FAILED, "ValueError: skip_tokens = 11 of a payload of 10 tokens")
    assert receiver.usage()["landing_bytes"] == 0


def test_branches_are_told_apart(stage, receiver):
    """Each name gets what was sent under its own id."""
    kept = {}
    for number, branch in enumerate(("text", "image", "none")):
        stage.kv = WORK.kv(torch.Generator().manual_seed(number))
        kept[branch] = stage.kv
        stage.send(f"r/{branch}")
    got = receiver.receive_branches({branch: f"r/{branch}" for branch in ("none", "text", "image")}, SENDER, 1.0)
    assert list(got) == ["none", "text", "image"]
    for branch, delivery in got.items():
        stage.kv = kept[branch]
        assert stage.is_sent(delivery)
    assert not same(got["text"].payload.keys[0], got["none"].payload.keys[0])


@pytest.mark.parametrize("missing", ["first", "second", "third"])
def test_branches_share_one_deadline(stage, receiver, missing):
    """One that does not come takes all the time there is, and costs the others nothing that is there."""
    names = ["first", "second", "third"]
    for name in names:
        if name != missing:
            stage.send(name)
    got = receiver.receive_branches({name: name for name in names}, SENDER, 0.5)
    assert {name: delivery.outcome for name, delivery in got.items()} == {n: Outcome.MISS if n == missing else Outcome.HIT for n in names}
    assert stage.clock.now() == pytest.approx(0.5, abs=1e-8)


def test_branches_that_all_miss_take_one_timeout(stage, receiver):
    """Not one each."""
    receiver.receive_branches({"a": "a", "b": "b", "c": "c"}, SENDER, 0.5)
    assert stage.clock.now() == pytest.approx(0.5, abs=1e-8)
    assert receiver.completions() == [Completion(name, 0, CompletionOutcome.MISSED) for name in "abc"]


def test_a_branch_that_fails_leaves_the_others(stage, receiver):
    """Each ends for itself, with its own reason."""
    for name in "ab":
        stage.send(name)
    stage.engine.lab.fail_next("copy")
    got = receiver.receive_branches({"first": "a", "second": "b"}, SENDER, 1.0)
    assert (got["first"].outcome, got["first"].reason) == (Outcome.FAILED, "InjectedFailure: copy failed, as the lab was told")
    assert stage.is_sent(got["second"])


def test_a_late_branch_is_waited_for_until_the_common_deadline(stage, receiver):
    """The first comes late, and the second has the rest of the time."""
    stage.wire.when_empty(lambda: stage.send("a"))
    got = receiver.receive_branches({"first": "a", "second": "b"}, SENDER, 20 * TICK)
    assert stage.is_sent(got["first"])
    assert got["second"].outcome is Outcome.MISS
    assert stage.clock.now() == pytest.approx(20 * TICK, abs=1e-8)


def test_the_oracle_notices_a_row_in_the_wrong_place(layout):
    """The twin of the comparisons above: one token taken for its neighbour, or one bit, is not the same cache."""
    source, target = cache(layout), cache(layout, seed=50)
    want = received_by_hand(layout, target, source, 0, 10)
    assert not untouched(want, received_by_hand(layout, target, source, 0, 9))
    assert not untouched(want, received_by_hand(layout, target, source, 1, 10))
    keys, values = row(layout, source, 0, 0, TABLE, 0)[None], row(layout, source, 0, 1, TABLE, 0)[None]
    assert holds(layout, source, TABLE, KVPayload((keys,), (values,)))
    assert not holds(layout, source, TABLE, KVPayload((row(layout, source, 0, 0, TABLE, 1)[None],), (values,)))
