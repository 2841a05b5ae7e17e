"""Heads reach the rank that holds them, when sender and receiver differ in tensor parallelism."""

from fixtures.ranks import MakeRanks, Ranks
from fixtures.transfer import MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Endpoint, KVOrder, Topology
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.tp.split", source="spec: TP 1 to 2; vllm#37940: right for equal TP, wrong for 1 to 2")
@requires(Transfer.HEAD_SLICING)
def test_split(ranks: MakeRanks, judge: Judge) -> None:
    """Each of several receiver ranks is given its own heads of one sender's cache."""
    for receivers in (2, 4):
        check_ranks(ranks(1, receivers, total=4), judge)


@claim("transfer.tp.join", source="spec: TP 2 to 1; vllm-omni#2705 (bot): only the default sender rank is asked")
@requires(Transfer.HEAD_SLICING)
def test_join(ranks: MakeRanks, judge: Judge) -> None:
    """One receiver rank is given the heads of all sender ranks, side by side in their order."""
    for senders in (2, 4):
        check_ranks(ranks(senders, 1, total=4), judge)


@claim("transfer.tp.equal", source="spec: TP 2 to 2")
@requires(Transfer.HEAD_SLICING)
def test_equal(ranks: MakeRanks, judge: Judge) -> None:
    """With as many senders as receivers each is given its peer's heads."""
    check_ranks(ranks(2, 2, total=4), judge)


@claim("transfer.tp.uneven", source="spec: head slicing when sender and receiver TP differ")
@requires(Transfer.HEAD_SLICING)
def test_uneven(ranks: MakeRanks, judge: Judge) -> None:
    """With 4 senders and 2 receivers, and the other way round, every head reaches its place."""
    check_ranks(ranks(4, 2, total=8), judge)
    check_ranks(ranks(2, 4, total=8), judge)


@claim("transfer.tp.replicated", source="spec: TP 8 to 1 with replicated heads: more ranks than KV heads")
@requires(Transfer.REPLICATED_HEADS)
def test_replicated(ranks: MakeRanks, judge: Judge) -> None:
    """Where ranks hold copies of a head, a receiver is given each head once, and a rank that needs a copy is given it."""
    check_ranks(ranks(8, 1, total=4), judge)
    check_ranks(ranks(1, 8, total=4), judge)
    check_ranks(ranks(8, 2, total=4), judge)


@claim("transfer.tp.hnd", source="vllm#37940 (#37703, #37333): head offsets of one layout on data of the other")
@requires(Transfer.HEAD_SLICING)
@requires(Transfer.HND)
def test_hnd(ranks: MakeRanks, judge: Judge) -> None:
    """Heads are split and joined rightly where they stand before tokens inside a block."""
    for packed in (True, False):
        check_ranks(ranks(1, 2, total=4, order=KVOrder.HND, packed=packed), judge)
        check_ranks(ranks(2, 1, total=4, order=KVOrder.HND, packed=packed), judge)


@claim("transfer.tp.missing_shard", source="vllm-omni#2705 (bot): some shards missing, or a timeout, when sender TP > receiver TP")
@requires(Transfer.HEAD_SLICING)
def test_missing_shard(ranks: MakeRanks, judge: Judge) -> None:
    """A receiver that needs two shards is given nothing while one of them has not come, and the whole once it has."""
    stages = ranks(2, 1, total=4)
    receiver = stages.receivers[0]
    stages.send("request", ranks=[0])
    receiver.check_no_hit(receiver.receive("request"), "request")
    judge.taken(receiver.fetched("request"), "the receiver asked")

    stages.send_again("request", ranks=[1])
    receiver.check(receiver.receive("request"), "request")


@claim("transfer.tp.own_port", source="vllm-omni#5650: ranks that bind one port; vllm-omni#2705: the source rank lost from the key list")
@requires(Transfer.RANK_PORTS)
def test_own_port(ranks: MakeRanks, judge: Judge) -> None:
    """Sender ranks of one host listen at ports of their own, and each shard is asked for where its sender listens."""
    base = Endpoint("9.8.7.6", 40400)
    stages = ranks(2, 1, total=4, own_endpoint=base)
    listening = [stage.sender.listens_at for stage in stages.senders]
    judge.demand(
        None not in listening and len(set(listening)) == 2, got=f"two sender ranks listen at {listening}", expected="a port for each"
    )

    stages.send("request")
    receiver = stages.receivers[0]
    receiver.check(receiver.receive("request", base), "request")
    asked = {call.handle for call in receiver.witness.calls("get", key_contains="request")}
    judge.equal(asked, set(listening), "endpoints asked for the two shards", source="where the ranks listen")


@claim("transfer.role.own_shard", source="vllm-omni#5650: all ranks build the key with rank 0")
def test_own_shard(boundary: MakeBoundary, judge: Judge) -> None:
    """Two tensor-parallel ranks that send under one request id each receive their own shard."""
    stages = [boundary(tp(0))]
    stages.append(boundary(tp(1), over=stages[0]))
    for stage in stages:
        stage.send("request")
    judge.differ(stages[0].sent["request"].kv[0], stages[1].sent["request"].kv[0], "the two ranks' shards")

    for stage in reversed(stages):
        stage.start("request")
        stage.check(stage.receiver.consume("request"), "request")


def tp(rank: int) -> Topology:
    """World of 2, TP 2 to 2."""
    return Topology(world_size=2, rank=rank, source_tp=2, target_tp=2, tp_rank=rank)


def check_ranks(stages: Ranks, judge: Judge) -> None:
    """Every receiver rank is given its heads, prefetched and received, and nothing is left at the connector."""
    __tracebackhide__ = True
    for path in ("prefetched", "received"):
        stages.send(path)
        for stage in reversed(stages.receivers):
            judge.stimulus = f"TP {len(stages.senders)} to {len(stages.receivers)}, {stages.total} KV heads, {path}"
            stage.check(stage.fetch(path, path), path)
    judge.equal(stages.receivers[0].witness.usage()["segments"], 0, "payloads that the connector still holds")
