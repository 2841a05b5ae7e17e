"""Who pulls a KV cache: each rank for itself, or a leader for its group. Roles follow from where a rank stands."""

from fixtures.transfer import MakeBoundary
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Outcome, ReceiveRole, Topology
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")

LOCAL, LEADER, FOLLOWER = ReceiveRole.LOCAL, ReceiveRole.LEADER, ReceiveRole.FOLLOWER


def tp(rank: int) -> Topology:
    """World of 2, TP 2 to 2."""
    return Topology(world_size=2, rank=rank, source_tp=2, target_tp=2, tp_rank=rank)


def cfg(rank: int) -> Topology:
    """World of 4, TP 2 to 2, CFG groups of 2: ranks 0 and 1 are the positive branch, 2 and 3 the negative one."""
    return Topology(world_size=4, rank=2 * rank, source_tp=2, target_tp=2, cfg_size=2, cfg_rank=rank)


def sp(rank: int, tp_rank: int) -> Topology:
    """World of 4, TP 2 to 2, sequence-parallel groups of 2, one for each TP rank."""
    return Topology(world_size=4, rank=2 * rank + tp_rank, source_tp=2, target_tp=2, tp_rank=tp_rank, sp_size=2, sp_rank=rank)


@claim("transfer.role.single", source="seed checks 2, receive role")
def test_single(boundary: MakeBoundary, judge: Judge) -> None:
    """A world of one receives for itself."""
    judge.equal(boundary(Topology()).receiver.role, LOCAL, "role in a world of 1")


@claim("transfer.role.pure_tp", source="seed checks 2, receive role")
def test_pure_tp(boundary: MakeBoundary, judge: Judge) -> None:
    """Under tensor parallelism alone every rank pulls its own shard."""
    for rank in (0, 1):
        judge.equal(boundary(tp(rank)).receiver.role, LOCAL, f"role of TP rank {rank}")


@claim("transfer.role.cfg_group", source="seed checks 2, receive role")
def test_cfg_group(boundary: MakeBoundary, judge: Judge) -> None:
    """In a CFG group the first rank leads and the second follows."""
    for rank, expected in ((0, LEADER), (1, FOLLOWER)):
        judge.equal(boundary(cfg(rank)).receiver.role, expected, f"role of CFG rank {rank}")


@claim("transfer.role.sp_group", source="seed checks 2, receive role")
def test_sp_group(boundary: MakeBoundary, judge: Judge) -> None:
    """In a sequence-parallel group the first rank leads and the second follows, for each TP rank."""
    for rank, tp_rank, expected in ((0, 0, LEADER), (0, 1, LEADER), (1, 0, FOLLOWER), (1, 1, FOLLOWER)):
        judge.equal(boundary(sp(rank, tp_rank)).receiver.role, expected, f"role of SP rank {rank} at TP rank {tp_rank}")


@claim("transfer.role.hsdp_leader", source="seed checks 2, receive role")
def test_hsdp_leader(boundary: MakeBoundary, judge: Judge) -> None:
    """Without tensor parallelism the first rank of a world of two leads."""
    judge.equal(boundary(Topology(world_size=2, rank=0)).receiver.role, LEADER, "role of world rank 0")


@claim("transfer.role.hsdp_follower", source="seed checks 2, receive role")
def test_hsdp_follower(boundary: MakeBoundary, judge: Judge) -> None:
    """Without tensor parallelism the second rank of a world of two follows."""
    judge.equal(boundary(Topology(world_size=2, rank=1)).receiver.role, FOLLOWER, "role of world rank 1")


@claim("transfer.role.uninitialised", source="seed checks 2, receive role")
def test_uninitialised(boundary: MakeBoundary, judge: Judge) -> None:
    """Where the parallel state was never initialised a rank receives for itself."""
    judge.equal(boundary(None).receiver.role, LOCAL, "role without a parallel state")


@claim("transfer.role.follower_never_fetches", source="seed checks 2, receive role")
def test_follower_never_fetches(boundary: MakeBoundary, judge: Judge) -> None:
    """A follower submits no prefetch, so it cannot take its leader's payload."""
    stage = boundary(cfg(1))
    stage.send("request")

    stage.start("request")

    judge.equal(stage.futures(), 0, "prefetches that the follower tracks")
    judge.equal(stage.receiver.consume("request").outcome, Outcome.MISS, "outcome on the follower")
    judge.equal(stage.fetched("request"), 0, "times that the follower asked the connector")
    stage.settle()


@claim("transfer.role.owner_fetches", source="seed checks 2, receive role")
def test_owner_fetches(boundary: MakeBoundary, judge: Judge) -> None:
    """The rank that owns the pull submits the prefetch and is given the payload."""
    stage = boundary(cfg(0))
    stage.send("request")

    stage.start("request")

    judge.equal(stage.futures(), 1, "prefetches that the owner tracks")
    judge.equal(stage.receiver.consume("request").outcome, Outcome.HIT, "outcome on the owner")
    judge.taken(stage.fetched("request"), "the connector was asked")
