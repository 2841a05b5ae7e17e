"""A receiver stage of several ranks: leaders pull, every other rank is given the same bytes, and nobody waits for ever."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from fixtures.processes import Stage, answer_or_error
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.processes import Kept, Pending
from harness.transfer.protocol import Delivery, KVPayload, Outcome, ReceiveRole, Topology
from harness.transfer.workload import Workload, expected_rows
from markers import register_ci, register_cuda_ci

register_ci(est_time=4, suite="transfer")
register_cuda_ci(est_time=5, suite="transfer-h100")

MakeStage = Callable[[Sequence[Topology]], Stage]

PLACES = [(tp, other) for other in range(2) for tp in range(2)]
"""(tensor-parallel rank, rank of the other group) of each rank in a world of 2 x 2, by rank."""


def hsdp(size: int) -> list[Topology]:
    """A world that shares each payload: no tensor parallelism."""
    return [Topology(size, rank) for rank in range(size)]


def tp_by_cfg() -> list[Topology]:
    """TP 2 x CFG 2."""
    return [Topology(4, rank, 2, 2, tp, cfg_size=2, cfg_rank=cfg) for rank, (tp, cfg) in enumerate(PLACES)]


def tp_by_sp() -> list[Topology]:
    """TP 2 x SP 2."""
    return [Topology(4, rank, 2, 2, tp, sp_size=2, sp_rank=sp) for rank, (tp, sp) in enumerate(PLACES)]


@dataclass
class Requests:
    """What was sent to a stage: a cache per request and shard."""

    judge: Judge
    workload: Workload
    generator: torch.Generator
    stage: Stage
    kv: dict[tuple[str, int], list[torch.Tensor]] = field(default_factory=dict)

    def send(self, request_id: str) -> None:
        """Every sender rank sends its own shard."""
        for shard, sender in enumerate(self.stage.senders):
            kv = self.kv[request_id, shard] = self.workload.kv(self.generator)
            sender.send(request_id, kv, self.workload.block_ids, self.workload.seq_len)

    def pull(self, request_id: str) -> list[Kept]:
        """Every rank asks; by rank."""
        return self.stage.pull(request_id, self.workload.endpoint)

    def check(self, delivery: Delivery, request_id: str, shard: int, what: str) -> None:
        """The delivery is a HIT with every row of the shard, and its length."""
        __tracebackhide__ = True
        self.judge.equal(delivery.outcome, Outcome.HIT, f"{what}: outcome")
        self.check_rows(delivery.payload, request_id, shard, what)
        self.judge.equal(delivery.valid_tokens, self.workload.seq_len, f"{what}: rows that hold KV")
        self.judge.equal(delivery.metadata.get("seq_len"), self.workload.seq_len, f"{what}: metadata seq_len")

    def check_rows(self, payload: KVPayload | None, request_id: str, shard: int, what: str) -> None:
        """Every row of the shard."""
        __tracebackhide__ = True
        layers = (len(payload.keys), len(payload.values)) if payload else (0, 0)
        self.judge.equal(layers, (self.workload.layers,) * 2, f"{what}: layers of keys and values")
        for layer, pages in enumerate(self.kv[request_id, shard]):
            keys, values = expected_rows(pages, self.workload.block_ids, self.workload.seq_len)
            for name, got, expected in (("keys", payload.keys[layer], keys), ("values", payload.values[layer], values)):
                where = f"{what}: layer {layer} {name}"
                self.judge.same_bits(got, expected, where, source="the sender's pages", axes=("token", "head", "dim"))


@pytest.fixture
def requests(
    stage_of_ranks: MakeStage, judge: Judge, workload: Workload, generator: torch.Generator
) -> Callable[[Sequence[Topology]], Requests]:
    """A function that starts a stage of these ranks, and keeps what is sent to it."""

    def make(topologies: Sequence[Topology]) -> Requests:
        judge.stimulus = f"world of {len(topologies)}: {topologies[-1]}"
        return Requests(judge, workload, generator, stage_of_ranks(topologies))

    return make


MakeRequests = Callable[[Sequence[Topology]], Requests]


@claim("transfer.world.hsdp", source="vllm-omni: leaders broadcast to followers (9 seeds on the receive role)")
@requires(Transfer.DISTRIBUTE)
def test_hsdp(requests: MakeRequests) -> None:
    """Where a whole world of 2 or of 4 shares each payload, every rank is given the bytes that its leader pulled, request after request."""
    for size in (2, 4):
        world = requests(hsdp(size))
        for request_id in ("r1", "r2"):
            world.send(request_id)
            fetched = [[delivery] for delivery in world.pull(request_id)]

            for rank, delivery in enumerate(world.stage.distribute(request_id, fetched)):
                world.check(delivery, request_id, 0, f"{request_id} on rank {rank} of {size}")


@claim("transfer.world.kept", source="vllm-omni: receive buffers are pooled; a later broadcast must not reach what a follower was given")
@requires(Transfer.DISTRIBUTE)
def test_kept(requests: MakeRequests) -> None:
    """What a rank was given keeps its bits while later requests are distributed, on the leader and on a follower."""
    world = requests(hsdp(2))
    kept = {}
    for request_id in ("r1", "r2", "r3"):
        world.send(request_id)
        fetched = [[delivery] for delivery in world.pull(request_id)]
        kept[request_id] = world.stage.results(world.stage.begin_distribute(request_id, fetched, keep=True))

    for request_id, deliveries in kept.items():
        for rank, payload in enumerate(world.stage.applied(deliveries)):
            world.check_rows(payload, request_id, 0, f"{request_id} on rank {rank}, after r3")


@claim("transfer.world.leader_asks", source="vllm-omni seeds: a follower never submits a prefetch, the owner does")
@requires(Transfer.DISTRIBUTE)
def test_leader_asks(requests: MakeRequests, judge: Judge) -> None:
    """The connector is asked for a payload once, by the leader; no follower asks."""
    world = requests(hsdp(2))
    world.send("r1")
    fetched = [[delivery] for delivery in world.pull("r1")]
    for rank, delivery in enumerate(world.stage.distribute("r1", fetched)):
        world.check(delivery, "r1", 0, f"rank {rank}")

    for rank, connector in enumerate(world.stage.world.connectors):
        leads = world.stage.roles[rank] is ReceiveRole.LEADER
        judge.equal(len(connector.calls("get")), int(leads), f"how often rank {rank} asked the connector")


@claim("transfer.world.cfg_branches", source="vllm-omni seeds: a CFG group of 2 in TP 2 has a leader and a follower per TP rank")
@requires(Transfer.DISTRIBUTE)
def test_cfg_branches(requests: MakeRequests) -> None:
    """In TP 2 x CFG 2 each leader pulls its shard of both guidance branches, and each rank is given its own branch of its own shard."""
    topologies = tp_by_cfg()
    world = requests(topologies)
    branches = ("r1", "r1-negative")
    for branch in branches:
        world.send(branch)
    pulled = [world.pull(branch) for branch in branches]

    given = world.stage.distribute("r1", [[own[rank] for own in pulled] for rank in range(len(topologies))])

    for rank, at in enumerate(topologies):
        world.check(given[rank], branches[at.cfg_rank], at.tp_rank, f"branch {at.cfg_rank} of shard {at.tp_rank} on rank {rank}")


@claim("transfer.world.sp_shards", source="vllm-omni seeds: a sequence-parallel group of 2 in TP 2 has a leader per TP rank")
@requires(Transfer.DISTRIBUTE)
def test_sp_shards(requests: MakeRequests) -> None:
    """In TP 2 x SP 2 every rank is given the shard of its own TP rank, pulled by the leader of that."""
    topologies = tp_by_sp()
    world = requests(topologies)
    world.send("r1")

    given = world.stage.distribute("r1", [[delivery] for delivery in world.pull("r1")])

    for rank, at in enumerate(topologies):
        world.check(given[rank], "r1", at.tp_rank, f"shard {at.tp_rank} on rank {rank}")


@claim("transfer.world.miss_told", source="vllm#50754, TensorRT-LLM#12542: one side fails, the other waits")
@requires(Transfer.DISTRIBUTE)
def test_miss_told(requests: MakeRequests, judge: Judge) -> None:
    """What the leader missed is a miss on every rank, and the next request is delivered to all of them."""
    world = requests(hsdp(2))
    missed = world.stage.distribute("r1", [[Delivery(Outcome.MISS)]] * 2)
    for rank, delivery in enumerate(missed):
        judge.equal((delivery.outcome, delivery.payload, delivery.size), (Outcome.MISS, None, 0), f"outcome, payload, size on rank {rank}")

    world.send("r2")
    for rank, delivery in enumerate(world.stage.distribute("r2", [[delivery] for delivery in world.pull("r2")])):
        world.check(delivery, "r2", 0, f"the next request on rank {rank}")


@claim("transfer.world.failure_told", source="vllm#50754, TensorRT-LLM#12542: one side fails, the other waits")
@requires(Transfer.DISTRIBUTE)
@requires(Transfer.FAILURE_REASONS)
def test_failure_told(requests: MakeRequests, judge: Judge) -> None:
    """What failed on the leader fails on every rank, with the leader's reason, and the next request is delivered to all of them."""
    world = requests(hsdp(2))
    failed = Delivery(Outcome.FAILED, reason="PayloadError: bytes changed on the way")
    for rank, delivery in enumerate(world.stage.distribute("r1", [[failed]] * 2)):
        judge.equal((delivery.outcome, delivery.payload), (Outcome.FAILED, None), f"outcome, payload on rank {rank}")
        judge.demand(failed.reason in delivery.reason, got=f"reason on rank {rank}: {delivery.reason!r}", expected=repr(failed.reason))

    world.send("r2")
    for rank, delivery in enumerate(world.stage.distribute("r2", [[delivery] for delivery in world.pull("r2")])):
        world.check(delivery, "r2", 0, f"the next request on rank {rank}")


@claim("transfer.world.leader_dies", source="vllm#50754, nixl#2047: a peer that is gone is waited for")
@requires(Transfer.DISTRIBUTE)
def test_leader_dies(requests: MakeRequests, judge: Judge) -> None:
    """When a leader dies while its follower waits for it, the follower is told by an error or a failure, and a new world delivers."""
    check_survivors(requests(hsdp(2)), judge)

    renewed = requests(hsdp(2))
    renewed.send("r3")
    for rank, delivery in enumerate(renewed.stage.distribute("r3", [[delivery] for delivery in renewed.pull("r3")])):
        renewed.check(delivery, "r3", 0, f"rank {rank} of the new world")


@claim("transfer.world.leader_dies_far", source="vllm#50754, nixl#2047: a peer that is gone is waited for")
@requires(Transfer.DISTRIBUTE)
def test_leader_dies_far(requests: MakeRequests, judge: Judge) -> None:
    """When a leader dies, a follower that is given its bytes by another follower is told too, and not left to wait for that one."""
    check_survivors(requests(hsdp(4)), judge)


def check_survivors(world: Requests, judge: Judge) -> None:
    """Deliver once; then the leader dies before it says a word, and every follower's call ends in time, without a payload."""
    __tracebackhide__ = True
    world.send("r1")
    for rank, delivery in enumerate(world.stage.distribute("r1", [[delivery] for delivery in world.pull("r1")])):
        world.check(delivery, "r1", 0, f"rank {rank} while all live")
    managers, roles = world.stage.world.managers, world.stage.roles
    followers = [rank for rank, role in enumerate(roles) if role is ReceiveRole.FOLLOWER]
    waiting = [managers[rank].begin("distribute", "r2", ()) for rank in followers]
    for rank, role in enumerate(roles):
        if role is ReceiveRole.LEADER:
            world.stage.world.children[rank].kill()
    for rank, pending in zip(followers, waiting, strict=True):
        check_told(judge, world.stage, pending, rank)


def check_told(judge: Judge, stage: Stage, pending: Pending, rank: int) -> None:
    """The rank's call ended, in time, without a payload."""
    __tracebackhide__ = True
    got = answer_or_error(lambda: stage.results([pending])[0])
    if isinstance(got, str):
        judge.demand(bool(got), got=f"rank {rank}: an error without a text", expected="one that says what happened")
        return
    judge.equal((got.outcome, got.payload), (Outcome.FAILED, None), f"outcome, payload on rank {rank} after its leader died")
