"""A prefetch runs before its request does, and its result is taken once, by that request."""

from typing import Any

from fixtures.transfer import MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Endpoint, Outcome
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.prefetch.delivers", source="seed checks 2, round trip")
def test_delivers(boundary: MakeBoundary, judge: Judge) -> None:
    """A started prefetch is tracked; consuming it gives every layer, the metadata and a size, and stops tracking it."""
    stage = boundary()
    stage.send("request", block_ids=stage.workload.seed_block_ids)

    stage.start("request")
    judge.equal(stage.futures(), 1, "prefetches tracked after the start")
    delivery = stage.receiver.consume("request")

    stage.check(delivery, "request")
    judge.equal(delivery.size, sum(c.size for c in stage.witness.calls("get")), "size", source="the bytes that the connector gave")
    judge.equal(stage.futures(), 0, "prefetches tracked after consuming")


@claim("transfer.prefetch.miss", source="seed checks 2, round trip")
def test_miss(boundary: MakeBoundary, judge: Judge) -> None:
    """Consuming a request that nothing was started for is a miss: no payload, size 0."""
    stage = boundary()
    stage.send("request")
    stage.start("request")

    stage.check_nothing(stage.receiver.consume("stranger"), Outcome.MISS, "stranger")
    stage.settle()


@claim("transfer.prefetch.started_twice", source="seed checks 2, round trip")
def test_started_twice(boundary: MakeBoundary, judge: Judge) -> None:
    """A second start for a request whose prefetch is under way keeps the first: one transfer, one payload."""
    stage = boundary()
    stage.send("request")
    stage.witness.hold("get")
    stage.start("request")
    stage.witness.wait_held("get")

    stage.start("request")
    judge.equal(stage.futures(), 1, "prefetches tracked after two starts")
    stage.witness.release("get")

    stage.check(stage.receiver.consume("request"), "request")
    stage.receiver.stop_prefetch()
    judge.equal(stage.fetched("request"), 1, "times that the connector was asked")


@claim("transfer.prefetch.needs_endpoint", source="seed checks 2, round trip")
def test_needs_endpoint(boundary: MakeBoundary, judge: Judge) -> None:
    """Without a sender endpoint nothing is submitted, so nothing can come from the wrong sender: not from the manager's own either."""
    for own in (None, Endpoint("9.8.7.6", 40400)):
        stage = boundary(own_endpoint=own)
        stage.send("request")

        stage.start("request", endpoint=None)
        judge.equal(stage.futures(), 0, "prefetches tracked after a start without an endpoint")
        stage.check_nothing(stage.receiver.consume("request"), Outcome.MISS, "request")
        judge.equal(stage.fetched("request"), 0, "times that the connector was asked")

        stage.start("request")
        stage.check(stage.receiver.consume("request"), "request")


@claim("transfer.prefetch.consume_drops_others", source="seed checks 2, round trip")
@requires(Transfer.PREFETCH_DEPTH, value=1)
def test_consume_drops_others(boundary: MakeBoundary, judge: Judge) -> None:
    """Consuming one request drops the prefetch of any other, also when it misses."""
    stage = boundary()
    for request, consumed_between in (("kept", False), ("dropped", True)):
        stage.send(request)
        stage.start(request)
        if consumed_between:
            judge.equal(stage.receiver.consume("stranger").outcome, Outcome.MISS, "outcome of the other request")
            judge.equal(stage.futures(), 0, "prefetches tracked after another request consumed")
        outcome = stage.receiver.consume(request).outcome
        judge.equal(outcome, Outcome.MISS if consumed_between else Outcome.HIT, f"outcome of {request}")
    stage.settle()


@claim("transfer.prefetch.start_drops_leftover", source="seed checks 2, round trip")
@requires(Transfer.PREFETCH_DEPTH, value=1)
def test_start_drops_leftover(boundary: MakeBoundary, judge: Judge) -> None:
    """Starting a request drops a prefetch that another one left behind, and the new one still arrives."""
    stage = boundary()
    stage.send("leftover")
    stage.send("request")

    stage.start("leftover")
    stage.start("request")
    judge.equal(stage.futures(), 1, "prefetches tracked after two requests started")

    stage.check(stage.receiver.consume("request"), "request")
    judge.equal(stage.receiver.consume("leftover").outcome, Outcome.MISS, "outcome of the leftover")
    stage.settle()


@claim("transfer.prefetch.stop", source="seed checks 2, round trip")
def test_stop(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """Stopping drops every prefetch, ended or under way, and ends the worker; a later start submits nothing."""
    for request, under_way in (("ended", False), ("under way", True)):
        stage = boundary()
        stage.send(request)
        if under_way:
            stage.witness.hold("get")
        stage.start(request)
        if under_way:
            stage.witness.wait_held("get")
            stage.witness.release("get")
        elif engine.lab is not None:
            engine.lab.advance(1)  # it has ended for certain; elsewhere it most likely has
        stage.receiver.stop_prefetch()
        after = dict(stage.receiver.usage())
        judge.equal((after["futures"], after["workers"]), (0, 0), "prefetches and workers after the stop")
        stage.check_nothing(stage.receiver.consume(request), Outcome.MISS, request)

        asked = stage.fetched(request)
        stage.start(request)
        stage.check_nothing(stage.receiver.consume(request), Outcome.MISS, request)
        judge.equal(stage.fetched(request), asked, "times that the connector was asked")
        stage.settle()


@claim("transfer.prefetch.start_returns", source="protocol: a start returns at once; DESIGN: a prefetch runs before its request does")
def test_start_returns(boundary: MakeBoundary, judge: Judge) -> None:
    """Starting a prefetch returns while its transfer is still under way."""
    stage = boundary()
    stage.send("request")
    stage.witness.hold("get")

    stage.start("request")
    stage.witness.wait_held("get")
    judge.equal(stage.futures(), 1, "prefetches tracked while the transfer is under way")
    stage.witness.release("get")

    stage.check(stage.receiver.consume("request"), "request")


@claim("transfer.prefetch.waits_for_sender", source="spec: the receiver may fetch before the sender has put; receive timeout 1.0 s")
def test_waits_for_sender(boundary: MakeBoundary, judge: Judge) -> None:
    """A prefetch that finds nothing yet waits for its sender."""
    stage = boundary()
    stage.witness.when_empty(lambda: stage.send("request"))

    stage.start("request")
    delivery = stage.receiver.consume("request")

    judge.demand(stage.fetched("request") > 1, got=f"{stage.fetched('request')} looks", expected="a second look, after the empty one")
    stage.check(delivery, "request")


@claim("transfer.prefetch.apply", source="seed checks 2, round trip")
def test_apply(boundary: MakeBoundary, judge: Judge) -> None:
    """A consumed payload, recorded on the current stream and applied, is the request's past key values."""
    stage = boundary()
    stage.send("request")
    stage.start("request")

    past = stage.receiver.apply(stage.receiver.consume("request"))

    stage.check_rows(past, "request")


@claim("transfer.prefetch.consume_waits", source="transfers overlap with compute: a consume may come before the copy ends")
@requires(Transfer.LAB)
def test_consume_waits(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """Consuming a request whose copy is under way waits for it instead of missing."""
    stage = boundary()
    stage.send("request")
    engine.lab.lag("copy", 5)
    try:
        stage.start("request")
        engine.lab.advance(1)
        judge.taken(stage.fetched("request"), "the copy was under way when the request came")

        stage.check(stage.receiver.consume("request"), "request")
    finally:
        engine.lab.lag("copy", 0)


@claim("transfer.prefetch.consume_late", source="TensorRT-LLM#15737: a ready response stays queued because its notification was lost")
@requires(Transfer.LAB)
def test_consume_late(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """A payload that was ready long before its request came is delivered at once: nothing is waited for that has happened."""
    stage = boundary()
    stage.send("request")
    stage.start("request")
    engine.lab.advance(50)
    judge.taken(stage.fetched("request"), "the transfer ended before the request came")

    stage.check(stage.receiver.consume("request"), "request")


@claim("transfer.prefetch.memory_floor", source="vllm-omni: prefetch_min_free_mem_ratio; a device without room for what runs now")
@requires(Transfer.MEMORY_FLOOR)
def test_memory_floor(boundary: MakeBoundary, judge: Judge) -> None:
    """No prefetch goes to a device of which less is free than configured, and the request is still received."""
    # All of it is never free, and none of it always is.
    for floor, tracked in ((1.0, 0), (0.0, 1)):
        stage = boundary(min_free_device=floor)
        request = f"floor-{floor}"
        stage.send(request)
        stage.start(request)
        judge.equal(stage.futures(), tracked, f"prefetches tracked at a floor of {floor}")
        delivery = stage.receiver.consume(request)
        judge.equal(delivery.outcome, Outcome.HIT if tracked else Outcome.MISS, f"outcome at a floor of {floor}")
        stage.check(delivery if tracked else stage.receive(request), request)


@claim("transfer.prefetch.memory_floor_edge", source="protocol: min_free_device is the share that must be free; below it none is submitted")
@requires(Transfer.MEMORY_FLOOR)
@requires(Transfer.LAB)
def test_memory_floor_edge(boundary: MakeBoundary, engine: Any, judge: Judge) -> None:
    """A prefetch goes to a device with exactly the configured share free, and to none with less."""
    for free, tracked in ((0.25, 1), (0.24, 0)):
        stage = boundary(min_free_device=0.25)
        engine.lab.free_memory = free
        try:
            stage.start(f"free-{free}")
            judge.equal(stage.futures(), tracked, f"prefetches tracked with {free} of the device free, and a floor of 0.25")
        finally:
            engine.lab.free_memory = None
        stage.settle()


@claim("transfer.prefetch.foreground_takes_over", source="protocol: a request has one transfer; a receive replaces its prefetch")
@requires(Transfer.ABORT)
def test_foreground_takes_over(boundary: MakeBoundary, judge: Judge) -> None:
    """A request that is received in the foreground while its prefetch is tracked is given its payload once."""
    stage = boundary()
    stage.send("request")
    stage.start("request")
    stage.check(stage.receive("request"), "request")

    judge.equal(stage.futures(), 0, "prefetches tracked after the receive")
    stage.check_nothing(stage.receiver.consume("request"), Outcome.MISS, "request")
    stage.settle()
