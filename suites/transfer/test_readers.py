"""How long a payload is held: until its readers have it, its lease ends, or somebody lets go of it."""

from fixtures.ranks import MakeRanks
from fixtures.transfer import Boundary, MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")

NOTHING = {"segments": 0, "bytes": 0}


@claim("transfer.readers.each", source="vllm-omni#3583: a payload deleted after the first read although several readers need it")
@requires(Transfer.READERS)
def test_each(boundary: MakeBoundary, judge: Judge) -> None:
    """Each reader of a payload is given it whole, in the background or in the foreground, and the last one frees it."""
    first = boundary()
    readers = [first, boundary(over=first), boundary(over=first)]
    first.send("request", readers=len(readers))
    for number, (stage, path) in enumerate(zip(readers, ("prefetched", "received", "prefetched"), strict=True)):
        judge.demand(first.witness.usage()["segments"] > 0, got=f"nothing is held before reader {number}", expected="the payload")
        stage.sent = first.sent
        stage.check(stage.fetch(path, "request"), "request")
    judge.equal(dict(first.witness.usage()), NOTHING, "what the connector holds after the last reader")


@claim("transfer.readers.abort_is_ones_own", source="vllm-omni#3583: what one reader does is not the others' loss")
@requires(Transfer.READERS)
@requires(Transfer.ABORT)
def test_abort_is_ones_own(boundary: MakeBoundary, judge: Judge) -> None:
    """A reader that aborts, even twice, with its payload or without it, leaves the other reader's payload there."""
    for name, has_it in (("had", True), ("gave up", False)):
        first = boundary()
        second = boundary(over=first)
        first.send(name, readers=2)
        if has_it:
            first.check(first.receive(name), name)
        for _ in (1, 2):
            first.receiver.abort(name)

        second.sent = first.sent
        second.check(second.receive(name), name)
        judge.equal(dict(first.witness.usage()), NOTHING, f"what the connector holds after both readers ({name})")


@claim("transfer.lease.within", source="vllm#53095: a lease; a reader that comes in time is served")
@requires(Transfer.LEASE)
def test_within(boundary: MakeBoundary, judge: Judge) -> None:
    """A payload sent for a time is delivered within it, and the end of that lease does not reach a later payload of the same id."""
    stage = boundary()
    stage.send("request", lease=stage.workload.receive_timeout / 2)
    stage.check(stage.receive("request"), "request")

    stage.send("request")
    wait_out(stage)
    stage.check(stage.receive("request"), "request")


@claim("transfer.lease.ended", source="Mooncake#850, #778; aws-samples/aws-do-eks#84: an expired lease, served as a hit")
@requires(Transfer.LEASE)
def test_ended(boundary: MakeBoundary, judge: Judge) -> None:
    """After its lease a payload is given to nobody, and its sender holds nothing for it; one without a lease is still there."""
    stage = boundary()
    stage.send("leased", lease=stage.workload.receive_timeout / 2)
    stage.send("kept")
    judge.equal(stage.witness.usage()["segments"], 2, "payloads held within the lease")
    wait_out(stage)

    for path in ("prefetched", "received"):
        stage.check_no_hit(stage.fetch(path, "leased"), "leased")
    judge.equal(stage.witness.usage()["segments"], 1, "payloads held after the lease")
    stage.check(stage.receive("kept"), "kept")


@claim("transfer.lease.each", source="vllm#53095: a lease that is not kept; each request has its own")
@requires(Transfer.LEASE)
def test_each_lease(boundary: MakeBoundary, judge: Judge) -> None:
    """Leases begun one after the other end each at its own time, the later and shorter one first."""
    stage = boundary()
    long, short = 4 * stage.workload.receive_timeout, stage.workload.receive_timeout / 2
    stage.send("long", lease=long)
    stage.send("short", lease=short)
    wait_out(stage)

    judge.equal(stage.witness.usage()["segments"], 1, "payloads held after the shorter lease")
    stage.check_no_hit(stage.receive("short", timeout=0), "short")
    stage.check(stage.receive("long"), "long")


@claim("transfer.lease.every_shard", source="Mooncake#850: what outlives its lease; a request has a shard for each receiver rank")
@requires(Transfer.LEASE)
@requires(Transfer.HEAD_SLICING)
def test_every_shard(ranks: MakeRanks, judge: Judge) -> None:
    """A lease ends for every shard of the request: no receiver rank is given its own, and nothing is held."""
    stages = ranks(1, 2, total=4)
    first, second = stages.receivers
    stages.send("request", lease=first.workload.receive_timeout / 2)
    judge.equal(first.witness.usage()["segments"], 2, "shards held within the lease")
    wait_out(first)

    judge.equal(dict(first.witness.usage()), NOTHING, "what the connector holds after the lease")
    for stage in (first, second):
        stage.check_no_hit(stage.receive("request", timeout=0), "request")


@claim("transfer.readers.every_shard", source="vllm-omni#3583: several readers, and each receiver rank has a shard of its own")
@requires(Transfer.READERS)
@requires(Transfer.HEAD_SLICING)
def test_every_shard_for_each(ranks: MakeRanks, judge: Judge) -> None:
    """Where a request has several readers, each shard of it has."""
    stages = ranks(1, 2, total=4)
    stages.send("request", readers=2)
    for stage in stages.receivers:
        again = stage.deploy("receiver")
        stage.check(stage.receive("request"), "request")
        stage.check(again.receive("request", stage.workload.endpoint, stage.workload.receive_timeout), "request")
        again.close()
    judge.equal(dict(stages.receivers[0].witness.usage()), NOTHING, "what the connector holds after the last reader")


@claim("transfer.reject.tracked", source="vllm#41269: a request that is turned down is not fetched any more")
@requires(Transfer.REJECT)
def test_tracked(boundary: MakeBoundary, judge: Judge) -> None:
    """A request that is turned down while its prefetch is tracked is tracked no longer, and its payload let go of."""
    stage = boundary()
    stage.send("request")
    stage.start("request")
    stage.receiver.reject("request", stage.workload.endpoint)

    judge.equal(stage.futures(), 0, "prefetches tracked after the request was turned down")
    stage.check_no_hit(stage.receiver.consume("request"), "request")
    judge.equal(stage.witness.usage()["segments"], 0, "payloads held after the request was turned down")
    stage.settle()


@claim("transfer.reject.told", source="vllm#41269: a receiver rejects before admission, and the sender's blocks stay held")
@requires(Transfer.REJECT)
def test_told(boundary: MakeBoundary, judge: Judge) -> None:
    """A request that its receiver turns down is let go of by its sender, and nobody else's is."""
    stage = boundary()
    stage.send("unwanted")
    stage.send("unwanted2")

    stage.receiver.reject("unwanted", stage.workload.endpoint)

    stage.check_no_hit(stage.receive("unwanted"), "unwanted")
    judge.equal(stage.witness.usage()["segments"], 1, "payloads held after one of two was turned down")
    stage.check(stage.receive("unwanted2"), "unwanted2")


@claim("transfer.abort.sender", source="vllm-omni#4414, #4349: staging segments that nobody cleans when the reader is gone")
@requires(Transfer.ABORT)
def test_sender_aborts(boundary: MakeBoundary, judge: Judge) -> None:
    """A request that its sender aborts is given to nobody, and held no longer; its id can be sent again."""
    stage = boundary()
    for _ in range(3):
        stage.send("request")
        stage.sender.abort("request")
        judge.equal(dict(stage.witness.usage()), NOTHING, "what the connector holds after the sender's abort")
    stage.check_no_hit(stage.receive("request"), "request")

    stage.send("request")
    stage.check(stage.receive("request"), "request")


@claim("transfer.abort.staging", source="vllm-omni#4414, #4349: the segment count grows by one with each abort")
@requires(Transfer.ABORT)
def test_staging(boundary: MakeBoundary, judge: Judge) -> None:
    """A request that its receiver aborts, begun or not, delivered before under the same id or not, is held no longer at its sender."""
    stage = boundary()
    for begun, delivered in ((False, False), (True, False), (False, True), (True, True)):
        if delivered:
            stage.send("request")
            stage.check(stage.receive("request"), "request")
        stage.send("request")
        if begun:
            stage.start("request")
        stage.receiver.abort("request")
        stage.check_no_hit(stage.receiver.consume("request"), "request")
        judge.equal(dict(stage.witness.usage()), NOTHING, f"what the connector holds (begun {begun}, delivered before {delivered})")


def wait_out(stage: Boundary) -> None:
    """Let `receive_timeout` pass on the engine's own clock: nobody sends what is asked for."""
    stage.check_no_hit(stage.receive("nobody"), "nobody")
