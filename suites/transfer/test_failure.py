"""A transfer that failed is never served, is told where the engine can tell, and does not take the next one with it."""

from functools import partial
from typing import Any

from fixtures.transfer import Boundary, MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.clock import TICK, Clock
from harness.core.judge import Judge
from harness.transfer.protocol import Outcome
from harness.transfer.witness import ConnectorFault
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.failure.not_delivered", source="dynamo#15079, vllm#20063: a failed load counted as loaded")
def test_not_delivered(boundary: MakeBoundary, judge: Judge) -> None:
    """A transfer whose connector fails is not a hit and carries nothing, in the background or in the foreground."""
    for how in ("prefetched", "received"):
        stage = boundary()
        stage.send(how)
        stage.witness.fail("get")
        delivery = stage.fetch(how, how)

        judge.taken(stage.fetched(how), "the connector was asked, and raised")
        stage.check_no_hit(delivery, how)
        judge.equal(stage.futures(), 0, "prefetches tracked after the failure")
        stage.settle()


@claim("transfer.failure.truncated", source="vllm#20063, Mooncake#3003: damaged KV must not be served")
def test_truncated(boundary: MakeBoundary, judge: Judge) -> None:
    """A payload that arrives cut short is not a hit."""
    check_refused(boundary, judge, "truncate")


@claim("transfer.failure.bit_flip", source="Mooncake#3003 (CRC-64), vllm#57912 (CRC32C): integrity checks locate corruption")
@requires(Transfer.INTEGRITY)
def test_bit_flip(boundary: MakeBoundary, judge: Judge) -> None:
    """A payload in which one bit changed on its way is not a hit."""
    check_refused(boundary, judge, "flip")


@claim("transfer.failure.told", source="vLLM RFC #19329: failures are reported and recovered, never served")
@requires(Transfer.FAILURE_REASONS)
def test_told(boundary: MakeBoundary, judge: Judge) -> None:
    """A failed transfer is told apart from a miss, with a reason, whatever failed and on either path."""
    # No flipped bit among them: that one is noticed at all is a capability of its own, INTEGRITY.
    errors = (ConnectorFault, OSError, ConnectionError, TimeoutError, ValueError)
    troubles = {error.__name__: partial(fail_with, error) for error in errors} | {"truncated": truncate}
    for name, trouble in troubles.items():
        for how in ("prefetched", "received"):
            stage = boundary()
            request = f"{name}-{how}"
            stage.send(request)
            trouble(stage)
            delivery = stage.fetch(how, request)
            judge.taken(stage.fetched(request), "the connector was asked")
            stage.check_nothing(delivery, Outcome.FAILED, request)
            judge.demand(bool(delivery.reason.strip()), got=f"{request}: no reason", expected="a reason that says what failed")
            stage.check_nothing(stage.receiver.consume("stranger"), Outcome.MISS, "stranger")
            stage.settle()


@claim("transfer.failure.next_works", source="vllm-omni: transfers stay off after one failed initialisation; one error must not latch")
def test_next_works(boundary: MakeBoundary, judge: Judge) -> None:
    """After a failed transfer the next request is fetched and arrives whole."""
    stage = boundary()
    for request in ("failing", "next"):
        stage.send(request)
    stage.witness.fail("get")
    stage.start("failing")
    stage.check_no_hit(stage.receiver.consume("failing"), "failing")
    judge.taken(stage.fetched("failing"), "the connector was asked, and raised")
    stage.witness.mend()

    stage.start("next")
    stage.check(stage.receiver.consume("next"), "next")
    stage.settle()


@claim("transfer.failure.retried", source="vllm#49250, #49252: a load that failed is made good, not lost; vLLM RFC #19329")
def test_retried(boundary: MakeBoundary, judge: Judge) -> None:
    """A request whose prefetch failed because the connector raised is still received in the foreground, whole."""
    stage = boundary()
    stage.send("request")
    stage.witness.fail("get")
    stage.start("request")
    stage.check_no_hit(stage.receiver.consume("request"), "request")
    judge.taken(stage.fetched("request"), "the connector was asked, and raised")
    stage.witness.mend()

    stage.check(stage.receive("request"), "request")


@claim("transfer.failure.strangers_payload", source="sglang#17259, #22716: a reused slot; another request's bytes under this one's key")
@requires(Transfer.INTEGRITY)
def test_strangers_payload(boundary: MakeBoundary, judge: Judge) -> None:
    """Another request's payload, whole and under the wrong key, is not delivered."""
    stage = boundary()
    stage.send("request")
    stage.send("stranger")
    stage.witness.damage("exchange")
    for path in ("prefetched", "received"):
        stage.check_no_hit(stage.fetch(path, "request"), "request")
        judge.taken(stage.fetched("request"), "the payload was fetched")
    stage.witness.mend()

    for request in ("request", "stranger"):
        stage.check(stage.receive(request), request)


@claim("transfer.failure.copy_fails", source="dynamo#15079, vllm#20063: a copy that fails once the payload is there")
@requires(Transfer.LAB)
def test_copy_fails(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """A payload whose copy fails inside the engine is not delivered, and is still there for the next try."""
    stage = boundary()
    for path in ("prefetched", "received"):
        stage.send(path)
        engine.lab.fail_next("copy")
        stage.check_no_hit(stage.fetch(path, path), path)
        judge.taken(stage.fetched(path), "the payload was fetched")
        stage.check(stage.receive(path), path)


@claim("transfer.failure.cannot_let_go", source="dynamo#15079 (inverse): what was delivered is delivered, whatever the clean-up does")
def test_cannot_let_go(boundary: MakeBoundary, judge: Judge) -> None:
    """A payload that arrived whole is delivered also where the connector fails to let go of it."""
    for path in ("prefetched", "received"):
        stage = boundary()
        stage.send(path)
        for op in ("done", "discard"):
            stage.witness.fail(op)
        stage.check(stage.fetch(path, path), path)
        stage.settle()


@claim("transfer.failure.zero_timeout", source="vllm#50754: how long a receiver waits is the caller's to say, also not at all")
def test_zero_timeout(boundary: MakeBoundary, judge: Judge) -> None:
    """A receive that may not wait is given what is there, and misses what is not."""
    stage = boundary()
    stage.send("request")
    stage.check(stage.receive("request", timeout=0), "request")

    stage.check_nothing(stage.receive("nobody", timeout=0), Outcome.MISS, "nobody")
    judge.taken(stage.fetched("nobody"), "the connector was asked")


@claim("transfer.failure.receive_times_out", source="seed checks 2: receive timeout 1.0 s; vllm#50754: a receiver that waits on and on")
def test_receive_times_out(boundary: MakeBoundary, engine: Any, judge: Judge, clock: Clock) -> None:
    """A receive that nothing is sent for is a miss after the call's own timeout and not before, be it under or over the configured one."""
    stage = boundary(receive_timeout=0.5)
    for timeout in (0.25, 1.0):
        started = clock.now()
        delivery = stage.receive("nobody", timeout=timeout)
        waited = clock.now() - started

        stage.check_nothing(delivery, Outcome.MISS, "nobody")
        judge.taken(stage.fetched("nobody"), "the connector was asked")
        judge.demand(waited >= timeout - TICK / 1000, got=f"a miss after {waited:.4f} s", expected=f"not before {timeout} s")
        if engine.lab is not None:
            # On a virtual clock nothing but the receive itself takes time.
            judge.equal(round(waited / TICK), round(timeout / TICK), f"ticks until the miss of a receive that waits {timeout} s")


@claim("transfer.failure.receive_waits", source="spec: the receiver waits for the sender up to the receive timeout")
def test_receive_waits(boundary: MakeBoundary, judge: Judge) -> None:
    """A receive that finds nothing yet waits for its sender, and is given what is sent meanwhile."""
    stage = boundary()
    stage.witness.when_empty(lambda: stage.send("request"))

    delivery = stage.receive("request")

    judge.demand(stage.fetched("request") > 1, got=f"{stage.fetched('request')} looks", expected="a second look, after the empty one")
    stage.check(delivery, "request")


def fail_with(error: type[Exception], stage: Boundary) -> None:
    """Let the connector raise `error`."""
    stage.witness.fail("get", error)


def truncate(stage: Boundary) -> None:
    """Let payloads arrive cut short."""
    stage.witness.damage("truncate")


def check_refused(boundary: MakeBoundary, judge: Judge, damage: str) -> None:
    """A payload damaged on its way is fetched and not delivered; the same payload whole is."""
    __tracebackhide__ = True
    for request, damaged in (("whole", False), ("damaged", True)):
        stage = boundary()
        stage.send(request)
        if damaged:
            stage.witness.damage(damage)
        stage.start(request)
        delivery = stage.receiver.consume(request)
        judge.taken(stage.fetched(request), "the payload was fetched")
        if damaged:
            stage.check_no_hit(delivery, request)
        else:
            stage.check(delivery, request)
        stage.settle()
