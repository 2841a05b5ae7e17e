"""The reference manager and its engine, through the protocol, with the witness under it."""

import re

import pytest
import torch

from harness.core.clock import TICK, SystemClock, VirtualClock
from harness.core.registry import EngineConfig
from harness.transfer.engines.reference import ReferenceTransfer
from harness.transfer.protocol import (
    Completion,
    CompletionOutcome,
    Delivery,
    Endpoint,
    EntryPoint,
    Outcome,
    ReceiveRole,
    Topology,
    TransferConfig,
)
from harness.transfer.reference.errors import TransferError
from harness.transfer.witness import WitnessConnector
from harness.transfer.workload import Workload, expected_rows

WORK = Workload()
SENDER = WORK.endpoint
LOCAL, LEADER, FOLLOWER = ReceiveRole


class Stage:
    """Both sides of a boundary on a virtual clock."""

    def __init__(self):
        self.clock = VirtualClock()
        self.engine = ReferenceTransfer.build(EngineConfig("cpu", "cpu", {"connector": "memory"}, 0), self.clock)
        self.wire = WitnessConnector(self.engine.connector(), self.clock)
        self.kv = WORK.kv(torch.Generator().manual_seed(3))
        self.sender = self.deploy(sends=True, receives=False)

    def deploy(self, topology=None, layers=2, **config):
        return self.engine.deploy(topology, self.wire, TransferConfig(WORK.layout(layers), **config))

    def send(self, request_id, block_ids=(0, 1, 2), seq_len=10):
        self.sender.send(request_id, self.kv, block_ids, seq_len)

    def is_sent(self, delivery, block_ids=(0, 1, 2), seq_len=10):
        want = [expected_rows(pages, list(block_ids), seq_len) for pages in self.kv]
        return all(
            torch.equal(k, want_k) and torch.equal(v, want_v)
            for k, v, (want_k, want_v) in zip(delivery.payload.keys, delivery.payload.values, want, strict=True)
        )


@pytest.fixture
def stage():
    stage = Stage()
    yield stage
    stage.engine.close()
    stage.wire.close()


@pytest.fixture
def receiver(stage):
    return stage.deploy()


@pytest.mark.parametrize("how", ["prefetch", "receive"])
def test_a_cache_arrives_whole_and_is_held_no_longer(stage, receiver, how):
    """The rows of the block table, the metadata and the size that the connector carried; then the key is free."""
    stage.send("r")
    if how == "prefetch":
        receiver.start_prefetch("r", SENDER)
        delivery = receiver.consume("r")
    else:
        delivery = receiver.receive("r", SENDER, 1.0)
    assert delivery.outcome is Outcome.HIT
    assert stage.is_sent(delivery)
    assert (delivery.valid_tokens, delivery.metadata["seq_len"]) == (10, 10)
    assert delivery.size == stage.wire.calls("put")[0].size > 0
    assert stage.wire.usage() == {"segments": 0, "bytes": 0}
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.DONE)]


def test_two_blocks_deliver_eight_rows_and_say_ten(stage, receiver):
    """The seeds' pair: fewer rows than the metadata names, and `valid_tokens` tells the truth."""
    stage.send("r", [0, 1], 10)
    delivery = receiver.receive("r", SENDER, 1.0)
    assert stage.is_sent(delivery, [0, 1])
    assert (len(delivery.payload.keys[0]), delivery.valid_tokens, delivery.metadata["seq_len"]) == (8, 8, 10)


def test_a_hit_is_applied_and_nothing_else_is(stage, receiver):
    """`apply` gives the request's past_key_values; a miss has none."""
    stage.send("r")
    delivery = receiver.receive("r", SENDER, 1.0)
    assert receiver.apply(delivery).keys[1] is delivery.payload.keys[1]
    with pytest.raises(ValueError, match="only a HIT can be applied, not MISS"):
        receiver.apply(Delivery(Outcome.MISS))


def test_send_is_a_snapshot(stage, receiver):
    """Blocks that are reused after `send` do not reach the receiver."""
    stage.send("r")
    kept = [pages.clone() for pages in stage.kv]
    for pages in stage.kv:
        pages.zero_()
    delivery = receiver.receive("r", SENDER, 1.0)
    stage.kv = kept
    assert stage.is_sent(delivery)


def test_a_miss_comes_at_the_timeout(stage, receiver):
    """Not before it and not after, with a last look at that moment."""
    assert receiver.receive("r", SENDER, 0.25) == Delivery(Outcome.MISS)
    assert stage.clock.now() == pytest.approx(0.25, abs=1e-8)
    assert stage.wire.calls("get")[-1].at == stage.clock.now()
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.MISSED)]


def test_a_late_sender_is_waited_for(stage, receiver):
    """The prefetch began with nothing there; what is sent within the timeout arrives."""
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(0.5)
    stage.send("r")
    assert stage.is_sent(receiver.consume("r"))


def test_consume_without_a_start_misses(stage, receiver):
    """Nothing is asked of the connector."""
    stage.send("r")
    assert receiver.consume("r") == Delivery(Outcome.MISS)
    assert stage.wire.calls("get") == []


def test_consume_waits_for_a_copy_under_way(stage, receiver):
    """The lag passes in the consume."""
    stage.send("r")
    stage.engine.lab.lag("copy", 50)
    receiver.start_prefetch("r", SENDER)
    assert receiver.consume("r").outcome is Outcome.HIT
    assert stage.clock.now() == pytest.approx(50 * TICK)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (lambda stage: stage.wire.fail_next("get"), "ConnectorFault: get of 'kv/0/r' failed"),
        (lambda stage: stage.wire.damage_next("get", "truncate"), "PayloadError: payload of .* bytes, sent as"),
        (lambda stage: stage.wire.damage_next("get", "flip"), "PayloadError: payload checksum"),
        (lambda stage: stage.engine.lab.fail_next("copy"), "InjectedFailure: copy failed"),
    ],
    ids=["connector", "truncated", "flipped", "copy"],
)
@pytest.mark.parametrize("how", ["prefetch", "receive"])
def test_trouble_is_a_failure_with_a_reason(stage, receiver, how, trouble, said):
    """Never a hit, never a miss; the payload stays, so that another receive gets it."""
    stage.send("r")
    trouble(stage)
    if how == "prefetch":
        receiver.start_prefetch("r", SENDER)
        delivery = receiver.consume("r")
    else:
        delivery = receiver.receive("r", SENDER, 1.0)
    assert (delivery.outcome, delivery.payload, delivery.size, delivery.valid_tokens) == (Outcome.FAILED, None, 0, 0)
    assert re.match(said, delivery.reason)
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.FAILED)]
    assert stage.is_sent(receiver.receive("r", SENDER, 1.0))


def test_another_layout_is_a_failure(stage):
    """A stage of three layers does not take a cache of two."""
    stage.send("r")
    delivery = stage.deploy(layers=3).receive("r", SENDER, 1.0)
    assert delivery.outcome is Outcome.FAILED
    assert "3 layers" in delivery.reason


def test_a_connector_that_refuses_is_told_to_the_sender(stage, monkeypatch):
    """`send` raises, so that nobody waits for what was never published."""
    monkeypatch.setattr(stage.wire, "put", lambda *_: (False, 0, None))
    with pytest.raises(TransferError, match=r"refused .* bytes of request 'r'"):
        stage.send("r")


def test_a_discard_that_fails_costs_no_hit(stage, receiver):
    """The request has its cache; what could not be let go is logged."""
    stage.send("r")
    stage.wire.fail_next("discard")
    assert stage.is_sent(receiver.receive("r", SENDER, 1.0))


@pytest.mark.parametrize("own", [None, Endpoint("9.9.9.9", 7)])
def test_a_calls_endpoint_is_for_that_call(stage, own):
    """It reaches the connector as the handle, and the manager's own endpoint is asked again afterwards."""
    options = {"sender_host": own.host, "sender_port": own.port} if own else {}
    receiver = stage.deploy(connector_options=options)
    assert receiver.endpoint == own
    receiver.receive("r", Endpoint("1.2.3.4", 50051), 0.0)
    receiver.receive("r", None, 0.0)
    assert receiver.endpoint == own
    assert [c.handle for c in stage.wire.calls("get")] == [Endpoint("1.2.3.4", 50051), own]


@pytest.mark.parametrize("options", [{"sender_host": "h"}, {"sender_port": 1}, {"sender_host": "h", "sender_port": "x"}])
def test_half_an_endpoint_is_refused(stage, options):
    """The text names both options."""
    with pytest.raises(ValueError, match=r"sender_host = .*, sender_port = .*; set both"):
        stage.deploy(connector_options=options)


@pytest.mark.parametrize("asked", [False, None, "absent", "true", 1])
def test_prefetch_is_off_unless_true(stage, asked):
    """Off, a start does nothing at all."""
    receiver = stage.deploy(async_prefetch=asked)
    receiver.start_prefetch("r", SENDER)
    assert not receiver.prefetch_enabled
    assert receiver.usage() == {"futures": 0, "workers": 0, "copies": 0, "held_bytes": 0}


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


def test_unequal_tp_is_refused_where_it_matters(stage):
    """The role is known; a send says what this engine does not do, a receive fails with it."""
    uneven = stage.deploy(Topology(world_size=2, source_tp=1, target_tp=2))
    assert uneven.role is LOCAL
    with pytest.raises(ValueError, match="TP 1 to 2"):
        uneven.send("r", stage.kv, [0], 4)
    assert "TP 1 to 2" in uneven.receive("r", SENDER, 0.0).reason


def test_an_abort_frees_both_sides(stage, receiver):
    """The fetch is dropped and the sender's payload discarded, though nobody read it."""
    stage.engine.lab.lag("copy", 10)
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(TICK)
    receiver.abort("r")
    assert stage.wire.usage()["segments"] == 0
    stage.clock.advance(10 * TICK)
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.ABORTED)]
    assert receiver.consume("r").outcome is Outcome.MISS


def test_an_abort_ends_the_wait_for_a_sender(stage, receiver):
    """A prefetch that polls gives up at once, not at the timeout."""
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(TICK)
    receiver.abort("r")
    stage.clock.advance(0.0)
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.ABORTED)]
    assert receiver.usage()["copies"] == 0


def test_an_abort_of_an_unknown_request_is_harmless(stage, receiver):
    """No state, no completion, no exception."""
    receiver.abort("unknown")
    assert receiver.completions() == []
    assert receiver.usage()["futures"] == 0


def test_a_reused_id_brings_the_new_bytes(stage, receiver):
    """The first use is aborted under way; the second gets what was sent for it."""
    stage.engine.lab.lag("copy", 10)
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(TICK)
    receiver.abort("r")
    stage.kv = WORK.kv(torch.Generator().manual_seed(4))
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    assert stage.is_sent(receiver.consume("r"))
    assert [(c.generation, c.outcome.value) for c in receiver.completions()] == [(0, "aborted"), (1, "done")]


def test_a_queued_fetch_never_reaches_the_connector_after_an_abort(stage, receiver):
    """The witness sees one get, for the request that was under way."""
    stage.send("a")
    stage.send("b")
    stage.wire.hold("get")
    receiver.start_prefetch("a", SENDER)
    stage.wire.wait_held("get")
    receiver.start_prefetch("b", SENDER)
    receiver.abort("b")
    stage.wire.release("get")
    receiver.stop_prefetch()
    assert [c.key for c in stage.wire.calls("get")] == ["kv/0/a"]


def test_a_dropped_leftover_can_still_be_received(stage, receiver):
    """Dropping a prefetch costs its request nothing but the head start."""
    stage.send("a")
    receiver.start_prefetch("a", SENDER)
    receiver.start_prefetch("b", None)
    assert stage.is_sent(receiver.receive("a", SENDER, 1.0))


def test_a_receive_replaces_a_prefetch_of_its_request(stage, receiver):
    """A cache is delivered once."""
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    assert receiver.receive("r", SENDER, 1.0).outcome is Outcome.HIT
    assert receiver.consume("r").outcome is Outcome.MISS


def test_stop_ends_prefetching_for_good(stage, receiver):
    """No worker is left, and a later start submits nothing; the foreground still works."""
    stage.send("r")
    receiver.start_prefetch("x", SENDER)
    receiver.stop_prefetch()
    receiver.start_prefetch("r", SENDER)
    assert receiver.usage() == {"futures": 0, "workers": 0, "copies": 0, "held_bytes": 0}
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))


def test_the_engine_counts_and_closes_its_managers(stage, receiver):
    """A manager closed by hand counts no longer; closing the engine twice is nothing."""
    assert stage.engine.usage() == {"managers": 2}
    receiver.close()
    assert stage.engine.usage() == {"managers": 1}
    stage.engine.close()
    stage.engine.close()
    assert stage.engine.usage() == {"managers": 0}


def test_the_lab_needs_virtual_time():
    """On wall time there is none, and a round trip works all the same."""
    engine = ReferenceTransfer.build(EngineConfig("cpu", "cpu", {}, 0), SystemClock())
    assert engine.lab is None
    connector, config = engine.connector(), TransferConfig(WORK.layout())
    manager = engine.deploy(None, connector, config)
    manager.send("r", WORK.kv(torch.Generator().manual_seed(5)), [0], 4)
    manager.start_prefetch("r", SENDER)
    assert manager.consume("r").outcome is Outcome.HIT
    engine.close()


@pytest.mark.parametrize(
    ("misuse", "said"),
    [
        (lambda lab: lab.lag("send", 1), "unknown operation 'send'; this lab knows copy"),
        (lambda lab: lab.fail_next("send"), "unknown operation 'send'"),
        (lambda lab: lab.lag("copy", -1), "a lag of -1 ticks"),
    ],
)
def test_the_lab_refuses_what_it_does_not_know(stage, misuse, said):
    """The text says what there is."""
    with pytest.raises(ValueError, match=said):
        misuse(stage.engine.lab)


def test_a_lag_ends(stage, receiver):
    """A lag of 0 takes no time."""
    stage.engine.lab.lag("copy", 5)
    stage.engine.lab.lag("copy", 0)
    stage.send("r")
    receiver.receive("r", SENDER, 1.0)
    assert stage.clock.now() == 0.0


@pytest.mark.parametrize("options", [{"connector": "pigeon"}, {"speed": "9"}])
def test_the_engine_refuses_options_that_it_does_not_know(options):
    """By name."""
    with pytest.raises(ValueError, match=r"pigeon|speed"):
        ReferenceTransfer.build(EngineConfig("cpu", "cpu", options, 0), VirtualClock())
