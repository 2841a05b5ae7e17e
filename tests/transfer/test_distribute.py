"""What a leader says to its followers, and what the ranks of a broken or a mistaken stage are told."""

import json

import pytest
import torch

from harness.core.blueprint import Blueprint
from harness.core.spec import EngineConfig
from harness.transfer.processes import RemoteError, World, warm
from harness.transfer.protocol import Delivery, KVPayload, Outcome, Topology, TransferConfig
from harness.transfer.reference.announce import Announcement, flattened, rebuilt
from harness.transfer.reference.distribute import Distributor
from harness.transfer.reference.errors import PayloadError, TransferError
from harness.transfer.workload import Workload

REFERENCE = Blueprint("transfer/reference", EngineConfig("cpu", "cpu", {"connector": "memory"}, 0))
PAIR = [Topology(2, rank) for rank in range(2)]
CPU = torch.device("cpu")


def hit(seed=0, tokens=3, dtype=torch.float32, layers=2):
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(tokens, 2, 5, generator=generator).to(dtype) for _ in range(2 * layers)]
    return Delivery(Outcome.HIT, KVPayload(tuple(rows[0::2]), tuple(rows[1::2])), 100 + seed, tokens, {"seq_len": tokens})


def bits(payload):
    return [None if t is None else t.contiguous().view(torch.uint8).tolist() for t in (*payload.keys, *payload.values)]


def told(deliveries, request_id="r1"):
    """The deliveries on the other side of a wire."""
    announcement = Announcement.of(request_id, deliveries)
    flat = flattened(announcement, deliveries, CPU)
    heard = Announcement.from_json(announcement.to_json())
    assert heard == announcement
    return rebuilt(heard, flat)


@pytest.fixture
def pair():
    """A leader and a follower."""
    warm()
    with World(REFERENCE, 2, 20.0, timeout=5.0) as world:
        engines = world._engines
        world.connectors = [engine.connector() for engine in engines]
        config = TransferConfig(Workload().layout())
        world.managers = [engine.deploy(*parts, config) for engine, *parts in zip(engines, PAIR, world.connectors, strict=True)]
        yield world


def end(pending):
    try:
        return pending.result()
    except Exception as error:  # noqa: BLE001 (what a rank raised is what the test is about)
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_a_follower_builds_the_same(dtype):
    first, second = hit(1, 3, dtype), hit(2, 7, dtype)

    for got, given in zip(told([first, second]), (first, second), strict=True):
        assert (got.outcome, got.size, got.valid_tokens, got.metadata) == (given.outcome, given.size, given.valid_tokens, given.metadata)
        assert bits(got.payload) == bits(given.payload)
        assert got.payload.keys[0].dtype == dtype


def test_a_layer_that_the_engine_did_not_give_stays_missing():
    payload = hit().payload
    (got,) = told([Delivery(Outcome.HIT, KVPayload((None, payload.keys[1]), payload.values), 8, 3)])

    assert got.payload.keys[0] is None
    assert torch.equal(got.payload.values[1], payload.values[1])


@pytest.mark.parametrize("delivery", [Delivery(Outcome.MISS), Delivery(Outcome.FAILED, reason="PayloadError: bytes changed")])
def test_what_carries_nothing_is_told_as_it_is(delivery):
    assert told([delivery]) == [delivery]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"request_id": "r1"}', b"\xff", json.dumps({"request_id": 1}).encode()])
def test_what_is_no_announcement_is_refused(text):
    with pytest.raises(PayloadError, match="announcement"):
        Announcement.from_json(text)


def test_a_local_rank_is_given_its_own():
    own = hit()

    assert Distributor(None).spread("r1", [own]) is own
    with pytest.raises(ValueError, match="passes its own"):
        Distributor(None).spread("r1")


def test_a_group_needs_torch_distributed():
    with pytest.raises(TransferError, match="init_process_group"):
        Distributor(Topology(2, 0)).spread("r1", [hit()])


@pytest.mark.parametrize(
    ("deliveries", "why"),
    [
        ((), "0 deliveries for a CFG group of 1"),
        ((hit(), hit()), "2 deliveries for a CFG group of 1"),
        ((Delivery(Outcome.HIT, None, 8, 3),), "pages cannot be distributed"),
    ],
)
def test_what_a_leader_may_not_pass_is_told_to_everybody(pair, deliveries, why):
    leader, follower = map(end, pair.begin("distribute", lambda rank: ("r1", deliveries if rank == 0 else ())))

    assert leader.startswith("ValueError: ")
    assert why in leader
    assert (follower.outcome, why in follower.reason) == (Outcome.FAILED, True)

    after = list(map(end, pair.begin("distribute", lambda rank: ("r2", (hit(),) if rank == 0 else ()))))
    assert [bits(delivery.payload) for delivery in after] == [bits(hit().payload)] * 2


def test_ranks_that_ask_for_different_requests_are_told_and_keep_step(pair):
    _, follower = map(end, pair.begin("distribute", lambda rank: ("r1", (hit(),)) if rank == 0 else ("r2", ())))
    assert "the leader distributes request 'r1', this rank asked for 'r2'" in follower

    after = list(map(end, pair.begin("distribute", lambda rank: ("r3", (hit(3),) if rank == 0 else ()))))
    assert [bits(delivery.payload) for delivery in after] == [bits(hit(3).payload)] * 2


def test_a_follower_passes_nothing(pair):
    leader, follower = map(end, pair.begin("distribute", lambda _: ("r1", (hit(),))))

    assert leader.outcome is Outcome.HIT
    assert "on a follower; it passes none" in follower


def test_a_lost_group_stays_lost_and_says_so(pair):
    for pending in pair.begin("distribute", lambda rank: ("r1", (hit(),) if rank == 0 else ())):
        pending.result()
    waiting = pair.managers[1].begin("distribute", "r2", ())
    pair.children[0].kill()

    with pytest.raises(RemoteError, match=r"request 'r2': rank 1 \(follower\) lost its group"):
        waiting.result()
    with pytest.raises(RemoteError, match="lost its group before"):
        pair.managers[1].distribute("r3", ())


def test_a_topology_of_another_world_is_refused(pair):
    engine, connector = pair._engines[0], pair.connectors[0]
    alien = engine.deploy(Topology(4, 0), connector, TransferConfig(Workload().layout()))

    with pytest.raises(ValueError, match=r"rank 0 of 4, but torch\.distributed has rank 0 of 2"):
        alien.distribute("r1", [hit()])
