"""A receiver stage of several ranks: leaders pull, every other rank is given the same bytes, and nobody waits for ever."""

from fixtures.worlds import MakeRequests, hsdp, tp_by_cfg, tp_by_sp
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Delivery, Outcome, ReceiveRole
from markers import register_ci, register_cuda_ci

register_ci(est_time=4, suite="transfer")
register_cuda_ci(est_time=5, suite="transfer-h100")


@claim("transfer.world.hsdp", source="vllm-omni: leaders broadcast to followers (9 seeds on the receive role)")
@requires(Transfer.DISTRIBUTE)
def test_hsdp(requests: MakeRequests) -> None:
    """Where a whole world of 2 or of 4 shares each payload, every rank is given the bytes that its leader pulled, request after request."""
    for size in (2, 4):
        world = requests(hsdp(size))
        for request_id in ("r1", "r2"):
            world.send(request_id)
            world.check_shared(request_id, world.pull(request_id), f" of {size}")


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
    world.check_shared("r1", world.pull("r1"))

    for rank, connector in enumerate(world.stage.world.connectors):
        leads = world.stage.roles[rank] is ReceiveRole.LEADER
        judge.equal(len(connector.calls("get")), int(leads), f"how often rank {rank} asked the connector")


@claim("transfer.world.cfg_branches", source="vllm-omni seeds: a CFG group of 2 in TP 2 has a leader and a follower per TP rank")
@requires(Transfer.DISTRIBUTE)
def test_cfg_branches(requests: MakeRequests) -> None:
    """In TP 2 x CFG 2 each leader pulls its shard of both guidance branches, and each rank is given its own branch of its own shard."""
    requests(tp_by_cfg()).check_branches(("r1", "r1-negative"))


@claim("transfer.world.sp_shards", source="vllm-omni seeds: a sequence-parallel group of 2 in TP 2 has a leader per TP rank")
@requires(Transfer.DISTRIBUTE)
def test_sp_shards(requests: MakeRequests) -> None:
    """In TP 2 x SP 2 every rank is given the shard of its own TP rank, pulled by the leader of that."""
    world = requests(tp_by_sp())
    world.send("r1")

    world.check_shared("r1", world.pull("r1"))


@claim("transfer.world.miss_told", source="vllm#50754, TensorRT-LLM#12542: one side fails, the other waits")
@requires(Transfer.DISTRIBUTE)
def test_miss_told(requests: MakeRequests, judge: Judge) -> None:
    """What the leader missed is a miss on every rank, and the next request is delivered to all of them."""
    world = requests(hsdp(2))
    missed = world.stage.distribute("r1", [[Delivery(Outcome.MISS)]] * 2)
    for rank, delivery in enumerate(missed):
        judge.equal((delivery.outcome, delivery.payload, delivery.size), (Outcome.MISS, None, 0), f"outcome, payload, size on rank {rank}")

    world.send("r2")
    world.check_shared("r2", world.pull("r2"), ", the next request")


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
    world.check_shared("r2", world.pull("r2"), ", the next request")


@claim("transfer.world.leader_dies", source="vllm#50754, nixl#2047: a peer that is gone is waited for")
@requires(Transfer.DISTRIBUTE)
def test_leader_dies(requests: MakeRequests) -> None:
    """When a leader dies while its follower waits for it, the follower is told by an error or a failure, and a new world delivers."""
    requests(hsdp(2)).check_survivors()

    renewed = requests(hsdp(2))
    renewed.send("r3")
    renewed.check_shared("r3", renewed.pull("r3"), " of the new world")


@claim("transfer.world.leader_dies_far", source="vllm#50754, nixl#2047: a peer that is gone is waited for")
@requires(Transfer.DISTRIBUTE)
def test_leader_dies_far(requests: MakeRequests) -> None:
    """When a leader dies, a follower that is given its bytes by another follower is told too, and not left to wait for that one."""
    requests(hsdp(4)).check_survivors()
