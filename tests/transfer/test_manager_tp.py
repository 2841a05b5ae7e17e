"""Heads between stages of different tensor parallelism, through managers on one connector."""

import pytest
import torch

from harness.core.clock import TICK
from harness.transfer.protocol import Endpoint, KVLayout, KVOrder, Outcome, Topology
from harness.transfer.workload import Workload
from tests.transfer.paged import any_bits, holds, same

WORK = Workload()
SENDER = WORK.endpoint
TABLE, TOKENS = [4, 0, 2], 10


def heads_of(total, ranks, rank):
    """As the protocol has it."""
    return [rank * total // ranks] if ranks > total else list(range(rank * total // ranks, (rank + 1) * total // ranks))


def layout_of(total, ranks, dtype, packed, order):
    return KVLayout(2, 4, max(1, total // ranks), 8, dtype, packed, order, total_heads=total)


class Stages:
    """A sender and a receiver stage over one connector. `model` holds all heads: [part][layer] is [blocks, block_size, heads, dim]."""

    def __init__(self, stage, source_tp, target_tp, total, dtype=torch.float32, packed=True, order=KVOrder.NHD, **config):
        self.stage, self.sizes, self.total, self.form = stage, (source_tp, target_tp), total, (dtype, packed, order)
        self.model = [[any_bits((6, 4, total, 8), dtype, 10 * part + layer) for layer in range(2)] for part in range(2)]
        self.senders = [self.deploy(source_tp, rank, sends=True, receives=False) for rank in range(source_tp)]
        self.receivers = [self.deploy(target_tp, rank, **config) for rank in range(target_tp)]

    def deploy(self, ranks, rank, **config):
        source_tp, target_tp = self.sizes
        topology = Topology(ranks, rank, source_tp, target_tp, rank)
        return self.stage.deploy(topology, layout=layout_of(self.total, ranks, *self.form), **config)

    def kv(self, ranks, rank):
        """The caches of one rank: its heads of the model's."""
        _, packed, order = self.form
        heads, layers = heads_of(self.total, ranks, rank), []
        for layer in range(2):
            parts = [self.model[part][layer].view(torch.uint8)[:, :, heads].view(self.form[0]) for part in range(2)]
            parts = [part.transpose(1, 2).contiguous() if order is KVOrder.HND else part for part in parts]
            both = torch.stack([part.view(torch.uint8) for part in parts]).view(self.form[0])
            layers.append(both if packed else tuple(parts))
        return layers

    def send(self, request_id="r", ranks=None, **options):
        for rank in range(self.sizes[0]) if ranks is None else ranks:
            self.senders[rank].send(request_id, self.kv(self.sizes[0], rank), TABLE, TOKENS, **options)

    def is_whole(self, delivery, rank):
        layout = layout_of(self.total, self.sizes[1], *self.form)
        return delivery.outcome is Outcome.HIT and holds(layout, self.kv(self.sizes[1], rank), TABLE, delivery.payload)


FORMS = [
    (torch.float32, True, KVOrder.NHD),
    (torch.bfloat16, True, KVOrder.HND),
    (torch.float8_e5m2, False, KVOrder.NHD),
    (torch.float16, False, KVOrder.HND),
]


@pytest.mark.parametrize(
    ("source_tp", "target_tp", "total"),
    [(1, 2, 4), (2, 1, 4), (2, 2, 4), (4, 2, 8), (2, 4, 8), (8, 1, 2), (1, 8, 2), (8, 2, 2), (2, 8, 4), (8, 8, 2), (8, 4, 1)],
)
@pytest.mark.parametrize("form", FORMS, ids=["float32", "bfloat16-hnd", "float8-split", "float16-split-hnd"])
@pytest.mark.parametrize("how", ["prefetch", "receive"])
def test_every_rank_gets_its_heads(stage, source_tp, target_tp, total, form, how):
    """Split, joined, and where ranks hold copies: bit for bit, in order, and nothing is left with the connector."""
    stages = Stages(stage, source_tp, target_tp, total, *form)
    stages.send()
    for rank, receiver in reversed(list(enumerate(stages.receivers))):
        assert stages.is_whole(stage.fetch(receiver, how), rank)
    assert stage.wire.usage() == {"segments": 0, "bytes": 0}


def test_another_ranks_heads_are_not_taken_for_its_own(stage):
    """The twin: the check above tells the ranks apart."""
    stages = Stages(stage, 1, 2, 4)
    stages.send()
    delivery = stages.receivers[0].receive("r", SENDER, 0.0)
    assert stages.is_whole(delivery, 0)
    assert not stages.is_whole(delivery, 1)


def test_each_shard_is_asked_of_the_rank_that_holds_it(stage):
    """At the port of that rank; of the manager's own sender where the call names none."""
    stages = Stages(stage, 2, 1, 4, own_endpoint=Endpoint("own", 7))
    stages.receivers[0].receive("r", SENDER, 0.0)
    stages.receivers[0].receive("r", None, 0.0)
    assert [(c.key, c.handle) for c in stage.wire.calls("get")] == [
        ("kv/0-0/r", SENDER),
        ("kv/1-0/r", Endpoint(SENDER.host, SENDER.port + 1)),
        ("kv/0-0/r", Endpoint("own", 7)),
        ("kv/1-0/r", Endpoint("own", 8)),
    ]


def test_half_a_request_is_a_miss(stage):
    """One of two senders has nothing yet: nothing is delivered, nor let go of; when it has, all of it comes."""
    stages = Stages(stage, 2, 1, 4)
    stages.send(ranks=[1])
    assert stages.receivers[0].receive("r", SENDER, 10 * TICK).outcome is Outcome.MISS
    assert stage.wire.usage()["segments"] == 1
    stages.send(ranks=[0])
    assert stages.is_whole(stages.receivers[0].receive("r", SENDER, 0.0), 0)


def test_a_shard_that_comes_later_is_waited_for(stage):
    """The one that was there is got once."""
    stages = Stages(stage, 2, 1, 4)
    stages.send(ranks=[0])
    stage.wire.when_empty(lambda: stages.send(ranks=[1]))
    assert stages.is_whole(stages.receivers[0].receive("r", SENDER, 1.0), 0)
    assert len(stage.wire.calls("get", "kv/0-0/r")) == 1


def test_shards_of_different_lengths_are_refused(stage):
    """Two ranks that disagree on how long the request is: never half of each."""
    stages = Stages(stage, 2, 1, 4)
    stages.send(ranks=[0])
    stages.senders[1].send("r", stages.kv(2, 1), TABLE, TOKENS - 1)
    delivery = stages.receivers[0].receive("r", SENDER, 0.0)
    assert delivery.outcome is Outcome.FAILED
    assert "hold different (tokens, seq_len): [(9, 9), (10, 10)]" in delivery.reason


def test_a_shard_under_anothers_key_is_refused(stage):
    """Bytes from rank 0 under the key of rank 1: the frame says whose it is."""
    stages = Stages(stage, 2, 1, 4)
    stages.send()
    data, _ = stage.wire.get("0", "1", "kv/0-0/r")
    stage.wire.put("0", "1", "kv/1-0/r", data)
    delivery = stages.receivers[0].receive("r", SENDER, 0.0)
    assert (delivery.outcome, delivery.reason) == (Outcome.FAILED, "PayloadError: payload from rank 0 to rank 0 came for 1 to 0")


def test_an_abort_lets_go_of_every_shard(stage):
    """On the receiver's side and on the sender's."""
    stages = Stages(stage, 4, 1, 4)
    stages.send()
    stages.receivers[0].abort("r")
    assert stage.wire.usage()["segments"] == 0
    stages.send()
    stages.senders[2].abort("r")
    assert [stage.wire.holds("0", "1", f"kv/{rank}-0/r") for rank in range(4)] == [True, True, False, True]


def test_the_size_counts_all_shards(stage):
    """As they were carried."""
    stages = Stages(stage, 2, 1, 4)
    stages.send()
    carried = sum(call.size for call in stage.wire.calls("put"))
    delivery = stages.receivers[0].receive("r", SENDER, 0.0)
    assert delivery.size == carried > 0
    assert not same(delivery.payload.keys[0], delivery.payload.values[0])
