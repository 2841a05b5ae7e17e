"""What a configuration and a topology make of a reference manager."""

import pytest
import torch

from harness.transfer.protocol import Endpoint, EntryPoint, Outcome, ReceiveRole, Topology
from harness.transfer.workload import Workload
from tests.transfer.conftest import NOTHING_HELD

WORK = Workload()
SENDER = WORK.endpoint
LOCAL, LEADER, FOLLOWER = ReceiveRole


@pytest.mark.parametrize("own", [None, Endpoint("9.9.9.9", 7)])
def test_a_calls_endpoint_is_for_that_call(stage, own):
    """It reaches the connector as the handle, and the manager's own endpoint is asked again afterwards."""
    receiver = stage.deploy(own_endpoint=own)
    assert receiver.endpoint == own
    receiver.receive("r", Endpoint("1.2.3.4", 50051), 0.0)
    receiver.receive("r", None, 0.0)
    assert receiver.endpoint == own
    assert [c.handle for c in stage.wire.calls("get")] == [Endpoint("1.2.3.4", 50051), own]


@pytest.mark.parametrize("asked", [False, None, "absent", "true", 1])
def test_prefetch_is_off_unless_true(stage, asked):
    """Off, a start does nothing at all."""
    receiver = stage.deploy(async_prefetch=asked)
    receiver.start_prefetch("r", SENDER)
    assert not receiver.prefetch_enabled
    assert receiver.usage() == NOTHING_HELD


def test_prefetch_is_on_when_true_beside_connector_options(stage):
    """The options survive, as a copy that nobody else changes."""
    options = {"type": "memory", "need_recv_cache": True}
    receiver = stage.deploy(async_prefetch=True, connector_options=options)
    options["type"] = "other"
    assert receiver.prefetch_enabled
    assert dict(receiver.connector_options) == {"type": "memory", "need_recv_cache": True}


@pytest.mark.parametrize("veto", [{"companion": True}, {"entry": EntryPoint.AUTOREGRESSIVE}], ids=["companion", "entry"])
def test_vetoes_turn_prefetch_off(stage, veto):
    """Though it is asked for."""
    assert not stage.deploy(async_prefetch=True, **veto).prefetch_enabled


@pytest.mark.parametrize(
    ("topology", "role"),
    [
        (None, LOCAL),
        (Topology(), LOCAL),
        (Topology(world_size=2, rank=1, source_tp=2, target_tp=2, tp_rank=1), LOCAL),
        (Topology(world_size=4, rank=0, source_tp=2, target_tp=2, cfg_size=2, cfg_rank=0), LEADER),
        (Topology(world_size=4, rank=1, source_tp=2, target_tp=2, tp_rank=1, cfg_size=2, cfg_rank=0), LEADER),
        (Topology(world_size=4, rank=2, source_tp=2, target_tp=2, cfg_size=2, cfg_rank=1), FOLLOWER),
        (Topology(world_size=4, rank=0, source_tp=2, target_tp=2, sp_size=2, sp_rank=0), LEADER),
        (Topology(world_size=4, rank=2, source_tp=2, target_tp=2, sp_size=2, sp_rank=1), FOLLOWER),
        (Topology(world_size=8, rank=4, source_tp=2, target_tp=2, cfg_size=2, cfg_rank=0, sp_size=2, sp_rank=1), FOLLOWER),
        (Topology(world_size=2, rank=0), LEADER),
        (Topology(world_size=2, rank=1), FOLLOWER),
    ],
)
def test_roles(stage, topology, role):
    """Alone and in pure tensor parallelism local; else the first of a group leads."""
    assert stage.deploy(topology).role is role


@pytest.mark.parametrize("topology", [Topology(world_size=2, rank=2), Topology(cfg_size=0), Topology(source_tp=0), Topology(sp_rank=-1)])
def test_impossible_topologies_are_refused(stage, topology):
    """Ranks lie in their groups, groups have members."""
    with pytest.raises(ValueError, match="topology: "):
        stage.deploy(topology)


@pytest.mark.parametrize(("cfg_rank", "gets"), [(0, 1), (1, 0)])
def test_only_the_owner_pulls(stage, cfg_rank, gets):
    """A follower submits no prefetch and asks nothing in the foreground."""
    stage.send("r")
    rank = Topology(world_size=4, rank=2 * cfg_rank, source_tp=2, target_tp=2, cfg_size=2, cfg_rank=cfg_rank)
    receiver = stage.deploy(rank)
    receiver.start_prefetch("r", SENDER)
    assert receiver.usage()["futures"] == gets
    assert receiver.consume("r").outcome is (Outcome.HIT if gets else Outcome.MISS)
    receiver.receive("r", SENDER, 0.0)
    assert bool(stage.wire.calls("get")) is bool(gets)


def test_each_tp_rank_gets_its_own_shard(stage):
    """Two ranks of both stages, one request: each receiver reads its sender's heads."""
    for rank in (0, 1):
        at = Topology(world_size=2, rank=rank, source_tp=2, target_tp=2, tp_rank=rank)
        stage.deploy(at, sends=True).send("r", [pages + rank for pages in stage.kv], [0], 4)
    for rank in (1, 0):
        at = Topology(world_size=2, rank=rank, source_tp=2, target_tp=2, tp_rank=rank)
        got = stage.deploy(at).receive("r", SENDER, 0.0)
        assert torch.equal(got.payload.keys[0], stage.kv[0][0, 0] + rank)


@pytest.mark.parametrize("call", ["send", "start_prefetch", "receive", "abort"])
def test_heads_that_do_not_divide_are_refused_where_it_matters(stage, call):
    """The role is known; every call that moves heads says which rule they break, in the caller's thread, and nothing was begun."""
    source, target = (2, 3) if call == "send" else (3, 2)
    uneven = stage.deploy(Topology(world_size=target, source_tp=source, target_tp=target))
    assert uneven.role is LOCAL
    arguments = {"send": (stage.kv, [0], 4), "start_prefetch": (SENDER,), "receive": (SENDER, 0.0), "abort": ()}[call]
    with pytest.raises(ValueError, match="do not divide over"):
        getattr(uneven, call)("r", *arguments)
    assert uneven.usage() == NOTHING_HELD
    assert uneven.completions() == []
