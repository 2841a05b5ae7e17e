"""Which payloads a request consists of, where they are found, and how they are waited for."""

import pytest
import torch

from harness.transfer.protocol import Endpoint, KVLayout, Topology, TransferConfig
from harness.transfer.reference.heads import Piece
from harness.transfer.reference.shards import Addressing, Found, Gather, Shard
from harness.transfer.reference.topology import ReceivePlan

BASE = Endpoint("h", 50051)
SHARDS = [Shard("a", Piece(0, 0, 0, 0, 1), BASE), Shard("b", Piece(1, 0, 0, 1, 1), Endpoint("h", 50052)), Shard("c", Piece(2, 0, 0, 2, 1))]


class Store:
    """A connector's get, with a dictionary behind it and a record of what was asked."""

    def __init__(self, **held):
        self.held, self.asked = held, []

    def get(self, key, endpoint):
        self.asked.append((key, endpoint))
        return self.held.get(key)


def addressing(source_tp, target_tp, rank, heads, total_heads=None, **config):
    layout = KVLayout(1, 4, heads, 8, torch.float32, total_heads=total_heads)
    topology = Topology(max(source_tp, target_tp), rank, source_tp, target_tp, rank)
    return Addressing(ReceivePlan(topology), TransferConfig(layout, **config))


def test_shards_that_came_are_kept_and_the_others_asked_for():
    """Look by look: what was found is not asked for again, though its sender has nothing more."""
    store = Store(b=(b"B", 1))
    gather = Gather(SHARDS, store.get)
    assert gather.look() is None
    assert [key for key, _ in store.asked] == ["a", "b", "c"]

    store.held, store.asked = {"c": (b"C", 9)}, []
    assert gather.look() is None
    assert [key for key, _ in store.asked] == ["a", "c"]

    store.held, store.asked = {"a": (b"A", 1)}, []
    assert gather.look() == [Found(SHARDS[0], b"A", 1), Found(SHARDS[1], b"B", 1), Found(SHARDS[2], b"C", 9)]
    assert store.asked == [("a", BASE)]


def test_each_shard_is_asked_of_its_own_sender():
    """None where the connector finds it by key."""
    store = Store()
    Gather(SHARDS, store.get).look()
    assert store.asked == [("a", BASE), ("b", Endpoint("h", 50052)), ("c", None)]


def test_a_shard_of_no_bytes_has_come():
    """What is not there is None, and nothing else is."""
    assert Gather(SHARDS[:1], Store(a=(b"", 0)).get).look() == [Found(SHARDS[0], b"", 0)]


def test_a_get_that_raises_is_told_and_costs_nothing_that_came():
    """The next look goes on from there."""

    class Failing(Store):
        def get(self, key, endpoint):
            if key not in self.held:
                raise ConnectionError(key)
            return super().get(key, endpoint)

    store = Failing(a=(b"A", 1))
    gather = Gather(SHARDS, store.get)
    with pytest.raises(ConnectionError, match="b"):
        gather.look()
    store.held = {"b": (b"B", 1), "c": (b"C", 1)}
    assert [found.data for found in gather.look()] == [b"A", b"B", b"C"]


@pytest.mark.parametrize(
    ("source_tp", "target_tp", "total"), [(1, 1, 4), (1, 2, 4), (2, 1, 4), (2, 2, 4), (4, 2, 4), (8, 1, 2), (1, 8, 2), (8, 2, 2), (8, 8, 2)]
)
def test_what_is_sent_is_what_is_asked_for(source_tp, target_tp, total):
    """All ranks together: the same keys and pieces on both sides, each key once, and each asked of the rank that sends it."""
    sent, asked = {}, {}
    for rank in range(source_tp):
        for shard in addressing(source_tp, target_tp, rank, max(1, total // source_tp), total).sent("r"):
            assert shard.key not in sent
            sent[shard.key] = (shard.piece, rank)
    for rank in range(target_tp):
        for shard in addressing(source_tp, target_tp, rank, max(1, total // target_tp), total).received("r", BASE):
            asked[shard.key] = (shard.piece, shard.endpoint.port - BASE.port)
    assert sent == asked


def test_keys_tell_requests_and_ranks_apart():
    """Whatever the ids look like: the ranks come first, and end at the first slash."""
    names = addressing(2, 2, 0, 4)
    keys = {
        names.key(request, Piece(source, target, 0, 0, 1)) for request in ("r", "0-1/r", "/r", "") for source in (0, 1) for target in (0, 1)
    }
    assert len(keys) == 16


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_of_a_host_listen_at_ports_of_their_own(rank):
    """Rank 0 at the stage's endpoint; nowhere without one."""
    assert addressing(2, 2, rank, 4, own_endpoint=BASE).listens_at() == Endpoint("h", 50051 + rank)
    assert addressing(2, 2, rank, 4).listens_at() is None
    assert [shard.endpoint for shard in addressing(2, 2, rank, 4).received("r", None)] == [None]


@pytest.mark.parametrize(
    ("heads", "total", "said"),
    [(4, 4, "heads = 4 on each of 2 ranks, total_heads = 4"), (2, 2, "heads = 2 on each of 2 ranks"), (0, 0, "heads")],
)
def test_a_layout_that_contradicts_its_ranks_is_refused(heads, total, said):
    """The heads of a rank and those of the model do not fit; 2 of 4 and 1 of 1, its twins, do."""
    with pytest.raises(ValueError, match=said):
        addressing(2, 2, 0, heads, total).received("r", None)
    assert len(addressing(2, 2, 0, 2, 4).received("r", None)) == len(addressing(2, 2, 0, 1, 1).received("r", None)) == 1


def test_stages_are_the_configurations_own():
    """Both go to the connector with every key."""
    assert addressing(1, 1, 0, 4, from_stage="prefill", to_stage="decode").stages() == ("prefill", "decode")
