"""A transfer that failed is never served, is told where the engine can tell, and does not take the next one with it."""

from fixtures.transfer import Boundary, MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Outcome
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.failure.not_delivered", source="dynamo#15079, vllm#20063: a failed load counted as loaded")
def test_not_delivered(boundary: MakeBoundary, judge: Judge) -> None:
    """A transfer whose connector failed is not a hit, in the background or in the foreground."""
    stage = boundary()
    stage.send("request")

    stage.witness.fail_next("get")
    stage.start("request")
    judge.demand(stage.receiver.consume("request").outcome is not Outcome.HIT, got="hit", expected="no hit: the connector raised")
    judge.taken(stage.fetched("request"), "the connector was asked, and raised")

    stage.witness.fail_next("get")
    judge.demand(stage.receive("request").outcome is not Outcome.HIT, got="hit", expected="no hit: the connector raised")
    judge.equal(stage.fetched("request"), 2, "times that the connector was asked")
    stage.settle()


@claim("transfer.failure.truncated", source="vllm#20063, Mooncake#3003: damaged KV must not be served")
def test_truncated(boundary: MakeBoundary, judge: Judge) -> None:
    """A payload that arrives cut short is not a hit."""
    check_refused(boundary(), judge, "truncate")


@claim("transfer.failure.bit_flip", source="Mooncake#3003 (CRC-64), vllm#57912 (CRC32C): integrity checks locate corruption")
@requires(Transfer.INTEGRITY)
def test_bit_flip(boundary: MakeBoundary, judge: Judge) -> None:
    """A payload in which one bit changed on its way is not a hit."""
    check_refused(boundary(), judge, "flip")


def check_refused(stage: Boundary, judge: Judge, damage: str) -> None:
    """A payload damaged on its way is fetched and not delivered; the same payload whole is."""
    __tracebackhide__ = True
    for request, damaged in (("whole", False), ("damaged", True)):
        stage.send(request)
        if damaged:
            stage.witness.damage_next("get", damage)
        stage.start(request)
        hit = stage.receiver.consume(request).outcome is Outcome.HIT
        judge.taken(stage.fetched(request), "the payload was fetched")
        judge.equal(hit, not damaged, f"whether the {request} payload is a hit")
    stage.settle()


@claim("transfer.failure.told", source="vLLM RFC #19329: failures are reported and recovered, never served")
@requires(Transfer.FAILURE_REASONS)
def test_told(boundary: MakeBoundary, judge: Judge) -> None:
    """A failed transfer is told apart from a miss, with a reason."""
    stage = boundary()
    stage.send("request")
    stage.witness.fail_next("get")
    stage.start("request")

    delivery = stage.receiver.consume("request")

    judge.equal(delivery.outcome, Outcome.FAILED, "outcome of a failed transfer")
    judge.demand(bool(delivery.reason.strip()), got="no reason", expected="a reason that says what failed")
    judge.equal(stage.receiver.consume("stranger").outcome, Outcome.MISS, "outcome of a request that nothing was started for")
    stage.settle()


@claim("transfer.failure.next_works", source="vllm-omni: transfers stay off after one failed initialisation; one error must not latch")
def test_next_works(boundary: MakeBoundary, judge: Judge) -> None:
    """After a failed transfer the next request is fetched and arrives whole."""
    stage = boundary()
    for request in ("failing", "next"):
        stage.send(request)
    stage.witness.fail_next("get")
    stage.start("failing")
    judge.demand(stage.receiver.consume("failing").outcome is not Outcome.HIT, got="hit", expected="no hit: the connector raised")

    stage.start("next")
    stage.check(judge, stage.receiver.consume("next"), "next")
    stage.settle()
