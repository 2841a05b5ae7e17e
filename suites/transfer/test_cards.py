"""Receiver stages whose ranks have a card each: what one rank pulled reaches the others from card to card, and nobody waits for ever."""

from fixtures.worlds import MakeRequests, hsdp, tp
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.transfer.protocol import Topology
from markers import hardware_marks, register_cuda_ci

pytestmark = hardware_marks(res={"cuda": "H100"}, num_cards=2)
register_cuda_ci(est_time=120, suite="transfer-h100-cards")


@claim("transfer.cards.shared", source="vllm-omni: leaders broadcast to followers; spec: world sizes 2 and 4 over NCCL")
@requires(Transfer.DISTRIBUTE)
def test_shared(requests: MakeRequests) -> None:
    """Where two cards share each payload, both are given the bytes that the leader pulled, request after request."""
    world = requests(hsdp(2))
    for request_id in ("r1", "r2"):
        world.send(request_id)
        world.check_shared(request_id, world.pull(request_id))


@claim("transfer.cards.own_card", source="spec: followers get the broadcast device to device")
@requires(Transfer.DISTRIBUTE)
def test_own_card(requests: MakeRequests) -> None:
    """What a rank is given lies on its own card, on the leader and on the follower."""
    requests(hsdp(2)).check_own_cards("r1")


@claim("transfer.cards.at_once", source="spec: prefetch into each card at once")
@requires(Transfer.HEAD_SLICING)
def test_at_once(requests: MakeRequests) -> None:
    """Prefetches that two cards begin before either is consumed arrive whole, each on its own card with its own heads."""
    world = requests(tp(2, 2))
    for request_id in ("r1", "r2"):
        world.check_at_once(request_id)


@claim("transfer.cards.split", source="spec: TP 1 to 2 across cards; vllm#37940: right for equal TP, wrong for 1 to 2")
@requires(Transfer.HEAD_SLICING)
def test_split(requests: MakeRequests) -> None:
    """Each of two cards is given its own heads of one sender's cache."""
    world = requests(tp(1, 2))
    world.send("r1")
    world.check_shared("r1", world.pull("r1"))


@claim("transfer.cards.join", source="spec: TP 2 to 1 across cards; vllm-omni#2705 (bot): only the default sender rank is asked")
@requires(Transfer.HEAD_SLICING)
@requires(Transfer.DISTRIBUTE)
def test_join(requests: MakeRequests) -> None:
    """Heads of two senders are joined on one card, and both cards of a CFG group are given all of them."""
    world = requests([Topology(2, rank, 2, 1, cfg_size=2, cfg_rank=rank) for rank in range(2)])
    world.send("r1")
    world.check_shared("r1", world.pull("r1"))


@claim("transfer.cards.branches", source="vllm-omni seeds: a CFG group of 2 has a leader and a follower")
@requires(Transfer.DISTRIBUTE)
def test_branches(requests: MakeRequests) -> None:
    """In a CFG group of two cards the leader pulls both guidance branches, and each card is given its own."""
    requests([Topology(2, rank, cfg_size=2, cfg_rank=rank) for rank in range(2)]).check_branches(("r1", "r1-negative"))


@claim("transfer.cards.sequence", source="vllm-omni seeds: a sequence-parallel group has one leader")
@requires(Transfer.DISTRIBUTE)
def test_sequence(requests: MakeRequests) -> None:
    """Both cards of a sequence-parallel group are given the whole payload that their leader pulled."""
    world = requests([Topology(2, rank, sp_size=2, sp_rank=rank) for rank in range(2)])
    world.send("r1")
    world.check_shared("r1", world.pull("r1"))


@claim("transfer.cards.leader_dies", source="vllm#50754, nixl#2047: a peer that is gone is waited for")
@requires(Transfer.DISTRIBUTE)
def test_leader_dies(requests: MakeRequests) -> None:
    """When a leader dies inside a broadcast, the other card's rank is told in time, and a new world on the same cards delivers."""
    requests(hsdp(2)).check_survivors()

    renewed = requests(hsdp(2))
    renewed.send("r3")
    renewed.check_shared("r3", renewed.pull("r3"), " of the new world")
