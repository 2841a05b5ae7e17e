"""As test_cards.py, on four cards: groups beside each other, and ranks that die among several."""

from fixtures.worlds import MakeRequests, hsdp, tp, tp_by_cfg, tp_by_sp
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from markers import hardware_marks, register_cuda_ci

pytestmark = hardware_marks(res={"cuda": "H100"}, num_cards=4)
register_cuda_ci(est_time=120, suite="transfer-h100-cards")


@claim("transfer.cards.four_shared", source="vllm-omni: leaders broadcast to followers; spec: world sizes 2 and 4 over NCCL")
@requires(Transfer.DISTRIBUTE)
def test_shared(requests: MakeRequests) -> None:
    """Where four cards share each payload, all are given the bytes that the leader pulled, request after request."""
    world = requests(hsdp(4))
    for request_id in ("r1", "r2"):
        world.send(request_id)
        world.check_shared(request_id, world.pull(request_id))


@claim("transfer.cards.four_at_once", source="spec: prefetch into each card at once")
@requires(Transfer.HEAD_SLICING)
def test_at_once(requests: MakeRequests) -> None:
    """Prefetches that four cards begin before any is consumed arrive whole, each on its own card with its own heads."""
    world = requests(tp(4, 4))
    for request_id in ("r1", "r2"):
        world.check_at_once(request_id)


@claim("transfer.cards.four_branches", source="vllm-omni seeds: a CFG group of 2 in TP 2 has a leader and a follower per TP rank")
@requires(Transfer.DISTRIBUTE)
def test_branches(requests: MakeRequests) -> None:
    """In TP 2 x CFG 2 on four cards each is given its own branch of its own shard."""
    requests(tp_by_cfg()).check_branches(("r1", "r1-negative"))


@claim("transfer.cards.four_sequence", source="vllm-omni seeds: a sequence-parallel group of 2 in TP 2 has a leader per TP rank")
@requires(Transfer.DISTRIBUTE)
def test_sequence(requests: MakeRequests) -> None:
    """In TP 2 x SP 2 on four cards each is given the shard of its own TP rank."""
    world = requests(tp_by_sp())
    world.send("r1")
    world.check_shared("r1", world.pull("r1"))


@claim("transfer.cards.four_leader_dies", source="vllm#50754, nixl#2047: a peer that is gone is waited for")
@requires(Transfer.DISTRIBUTE)
def test_leader_dies(requests: MakeRequests) -> None:
    """When the leader of four cards dies inside a broadcast, every other rank is told in time."""
    requests(hsdp(4)).check_survivors()


@claim("transfer.cards.four_follower_dies", source="vllm#50754, nixl#2047: a peer that is gone is waited for")
@requires(Transfer.DISTRIBUTE)
def test_follower_dies(requests: MakeRequests) -> None:
    """When a follower dies, every other rank is given its bytes or told, in time, and a new world on the same cards delivers."""
    requests(hsdp(4)).check_without_a_follower()

    renewed = requests(hsdp(4))
    renewed.send("r3")
    renewed.check_shared("r3", renewed.pull("r3"), " of the new world")
