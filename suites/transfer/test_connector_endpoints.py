"""A connector that listens gets from whom it is told to; whatever stands there instead is told, in time, and harms nothing after it."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fixtures.connector import SLOT, check_payload, payload
from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.core.verdict import EngineRaised
from harness.transfer.protocol import Connector, Endpoint
from harness.transfer.strangers import Babbling, Proxy, Refusing, Silent, Trouble, Way, What
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=5, suite="connector")

LIMIT, SMALL = 1000, 16
"""Bytes: a limit, and a payload that is small enough to try every byte of its stream."""
DEADLINE = 1.0
"""Seconds: the option `deadline` of the engines that meet somebody slow."""
PATIENCE = 4 * DEADLINE
"""Seconds that a slow stranger holds out. Who is still there at its end gets another outcome than a timeout: it has no deadline."""
DRAWN = 12
"""Places in a stream that are drawn, beside its ends."""


@claim("connector.endpoint.named", source="vllm-omni update_sender_info: a request pulls from the wrong sender")
@requires(ConnectorCap.ENDPOINTS)
@requires(ConnectorCap.MANY_READS)
def test_named(engine: Any, judge: Judge, seed: int) -> None:
    """A get with an endpoint asks the sender that listens there, whatever others hold under the same key."""
    senders, receiver = [engine.connector() for _ in range(3)], engine.connector()
    for number, sender in enumerate(senders):
        sender.put(*SLOT, payload(seed + number))
    judge.equal(len({sender.endpoint for sender in senders}), len(senders), "endpoints of as many senders")

    for number, sender in (*enumerate(senders), *reversed(list(enumerate(senders)))):
        check_arrives(judge, receiver, sender.endpoint, payload(seed + number))
    judge.equal(receiver.get(*SLOT), None, "what the receiver itself, which put nothing, gives")
    close(receiver, *senders)


@claim("connector.endpoint.told", source="vllm#41269: a receiver that lets go does not tell the sender")
@requires(ConnectorCap.ENDPOINTS)
def test_told(engine: Any, judge: Judge, seed: int) -> None:
    """A done and a discard with an endpoint free the payload there, and only there."""
    first, second, receiver = (engine.connector() for _ in range(3))
    for name in ("done", "discard"):
        for sender in (first, second):
            sender.put(*SLOT, payload(seed))
        check_arrives(judge, receiver, first.endpoint, payload(seed))
        getattr(receiver, name)(*SLOT, first.endpoint)

        judge.equal((first.holds(*SLOT), second.holds(*SLOT)), (False, True), f"held by the sender told and by the other after a {name}")
        judge.equal(receiver.get(*SLOT, first.endpoint), None, f"what the sender gives after the {name}")
    close(receiver, first, second)


@claim("connector.endpoint.refused", source="vllm#50754, nixl#2047: a failure to reach the peer that nobody is told of")
@requires(ConnectorCap.ENDPOINTS)
def test_refused(engine: Any, judge: Judge, seed: int) -> None:
    """A get from an endpoint where nobody listens is a ConnectionError that names it, and no None."""
    receiver = engine.connector()
    with Refusing() as stranger:
        check_told(judge, receiver, stranger.endpoint, (ConnectionError,))
    close(receiver)


@claim("connector.endpoint.closed", source="vllm-omni#5650: ports that are still taken")
@requires(ConnectorCap.ENDPOINTS)
def test_closed(engine: Any, judge: Judge, seed: int) -> None:
    """Where a closed connector listened nobody listens any more, also for those who were connected."""
    sender, receiver = engine.connector(), engine.connector()
    sender.put(*SLOT, payload(seed))
    check_arrives(judge, receiver, sender.endpoint, payload(seed))
    endpoint = sender.endpoint
    sender.close()

    check_told(judge, receiver, endpoint, (ConnectionError,))
    close(receiver)


@claim("connector.endpoint.silent", source="TensorRT-LLM#15737, nixl#2047: a receiver hangs on a peer that says nothing")
@requires(ConnectorCap.ENDPOINTS)
def test_silent(build_engine: Callable[..., Any], judge: Judge, seed: int) -> None:
    """A get from an endpoint that accepts and stays silent is a TimeoutError that names it, at the deadline that the engine was given."""
    receiver = build_engine(deadline=str(DEADLINE)).connector()
    with Silent(PATIENCE) as stranger:
        check_told(judge, receiver, stranger.endpoint, (TimeoutError,))
    close(receiver)


@claim("connector.endpoint.dripping", source="spec: a deadline on every read; Mooncake#3542: a peer that accepts and makes no progress")
@requires(ConnectorCap.ENDPOINTS)
def test_dripping(build_engine: Callable[..., Any], judge: Judge, seed: int) -> None:
    """A sender whose answer comes a byte at a time does not hold a get longer than the deadline: a TimeoutError that names it."""
    engine = build_engine(deadline=str(DEADLINE))
    sender, receiver = engine.connector(), engine.connector()
    sender.put(*SLOT, payload(seed))
    length = len_of_stream(judge, receiver, sender, payload(seed), Way.DOWN)
    sender.put(*SLOT, payload(seed))  # once more: a get may have taken the first away
    with Proxy(sender.endpoint, Trouble(What.DRIP, pause=PATIENCE / length)) as stranger:
        check_told(judge, receiver, stranger.endpoint, (TimeoutError,))
    close(receiver, sender)


@claim("connector.endpoint.stranger", source="spec: wrong magic is a clear error; vllm-omni#5650: data reaches the wrong listener")
@requires(ConnectorCap.ENDPOINTS)
def test_stranger(engine: Any, judge: Judge, seed: int) -> None:
    """A get from a port that belongs to another service is a ConnectionError that names it, whatever that service says."""
    receiver = engine.connector()
    noise = bytes(payload(seed, 1 << 16).tolist())
    for text in (Babbling.HTTP, b"\n", b"\0" * 4096, noise):
        with Babbling(text) as stranger:
            check_told(judge, receiver, stranger.endpoint, (ConnectionError,))
    close(receiver)


@claim("connector.endpoint.cut", source="spec: a half-sent frame is a clear error; vllm#20063: a failed load counted as loaded")
@requires(ConnectorCap.ENDPOINTS)
@requires(ConnectorCap.MANY_READS)
def test_cut(engine: Any, judge: Judge, seed: int) -> None:
    """However much of an answer came before its connection ended, a get gives an error or the whole payload, no part of it and no None."""
    sender, receiver = engine.connector(), engine.connector()
    sender.put(*SLOT, payload(seed))
    length = len_of_stream(judge, receiver, sender, payload(seed), Way.DOWN)

    # Up to twice the length: the second of two gets may be cut on a connection that the first one left.
    for at in drawn(seed, 2 * length):
        with Proxy(sender.endpoint, Trouble(What.CUT, at=at)) as proxy:
            refused = [check_error_or_whole(judge, receiver, proxy.endpoint, payload(seed)) for _ in range(2)]
            if at < length:
                judge.equal(refused[0], True, f"an error where {at} of {length} bytes came")
    close(receiver, sender)


@claim("connector.endpoint.flipped", source="Mooncake#3003 (CRC-64), vllm#57912 (CRC32C): integrity checks locate corruption")
@requires(ConnectorCap.ENDPOINTS)
@requires(ConnectorCap.MANY_READS)
@requires(ConnectorCap.INTEGRITY)
def test_flipped(build_engine: Callable[..., Any], judge: Judge, seed: int) -> None:
    """Whichever byte of a request or of its answer is changed on the way, a get gives an error or the payload as it was put."""
    engine = build_engine(deadline=str(DEADLINE))
    sender, receiver = engine.connector(), engine.connector()
    data = payload(seed, SMALL)
    sender.put(*SLOT, data)
    for way in Way:
        length = len_of_stream(judge, receiver, sender, data, way)
        refused = 0
        for at in range(length):
            with Proxy(sender.endpoint, Trouble(What.FLIP, way, at)) as proxy:
                refused += check_error_or_whole(judge, receiver, proxy.endpoint, data)
        judge.taken(refused, f"a flipped bit was noticed, on the way {way.value}")
    close(receiver, sender)


@claim("connector.endpoint.oversize", source="spec: an oversize length is a clear error; nothing is allocated for it")
@requires(ConnectorCap.ENDPOINTS)
@requires(ConnectorCap.LIMIT)
def test_oversize(build_engine: Callable[..., Any], judge: Judge, seed: int) -> None:
    """A payload larger than the receiver's limit is refused, with the limit named; one of just that size arrives."""
    sender = build_engine().connector()
    receiver = build_engine(limit=str(LIMIT)).connector()
    sender.put("0", "1", "larger", payload(seed, LIMIT + 1))
    sender.put(*SLOT, payload(seed, LIMIT))

    said = judge.refused(lambda: receiver.get("0", "1", "larger", sender.endpoint), "a get over the limit", (ConnectionError, ValueError))
    judge.demand(str(LIMIT) in said, got=f"an error that says {said!r}", expected=f"the limit, {LIMIT} bytes, in it")
    said = judge.refused(lambda: receiver.put("0", "1", "larger", payload(seed, LIMIT + 1)), "a put over the limit", (ValueError,))
    judge.demand(str(LIMIT) in said, got=f"an error that says {said!r}", expected=f"the limit, {LIMIT} bytes, in it")
    check_arrives(judge, receiver, sender.endpoint, payload(seed, LIMIT))
    close(receiver, sender)


@claim("connector.endpoint.next_works", source="vllm-omni: transfers stay off after one failed initialisation; one error must not latch")
@requires(ConnectorCap.ENDPOINTS)
@requires(ConnectorCap.MANY_READS)
def test_next_works(build_engine: Callable[..., Any], judge: Judge, seed: int) -> None:
    """After each kind of bad peer the same connector still gets from a good one, also through the endpoint where the bad one was met."""
    engine = build_engine(deadline=str(DEADLINE))
    sender, receiver = engine.connector(), engine.connector()
    sender.put(*SLOT, payload(seed))
    for stranger in (Refusing(), Babbling(), Silent(PATIENCE), Proxy(sender.endpoint, Trouble(What.CUT, at=1))):
        with stranger:
            check_told(judge, receiver, stranger.endpoint, (ConnectionError, TimeoutError))
        check_arrives(judge, receiver, sender.endpoint, payload(seed))
    close(receiver, sender)


def close(*carriers: Connector) -> None:
    """The receiver first, as a stage boundary goes down."""
    for carrier in carriers:
        carrier.close()


def drawn(seed: int, length: int) -> list[int]:
    """Places in a stream of so many bytes: both ends, and drawn ones between."""
    inner = random.Random(seed).sample(range(1, length - 1), DRAWN)
    return [0, *sorted(inner), length - 1]


def len_of_stream(judge: Judge, receiver: Connector, sender: Connector, expected: torch.Tensor, way: Way) -> int:
    """Bytes that one get takes over a connection of its own, on the way given."""
    __tracebackhide__ = True
    with Proxy(sender.endpoint) as straight:
        check_arrives(judge, receiver, straight.endpoint, expected)
        return straight.passed[way]


def check_arrives(judge: Judge, receiver: Connector, endpoint: Endpoint, expected: torch.Tensor) -> None:
    """A get from there gives the payload, bit for bit."""
    __tracebackhide__ = True
    found = receiver.get(*SLOT, endpoint)
    check_payload(judge, found, expected, f"payload from port {endpoint.port}", source="what was put there")


def check_error_or_whole(judge: Judge, receiver: Connector, endpoint: Endpoint, expected: torch.Tensor) -> bool:
    """A get from there raises, or gives the payload bit for bit; whether it raised."""
    __tracebackhide__ = True
    try:
        found = receiver.get(*SLOT, endpoint)
    except EngineRaised:
        return True
    check_payload(judge, found, expected, f"payload from port {endpoint.port}", source="what was put there")
    return False


def check_told(judge: Judge, receiver: Connector, endpoint: Endpoint, kinds: tuple[type[Exception], ...]) -> None:
    """A get from there is an error of these kinds, which names the endpoint. How long it took is recorded."""
    __tracebackhide__ = True
    begun = time.monotonic()
    said = judge.refused(lambda: receiver.get(*SLOT, endpoint), f"a get from port {endpoint.port}", kinds)
    judge.figure("told after", time.monotonic() - begun, "s")
    judge.demand(
        endpoint.host in said and str(endpoint.port) in said,
        got=f"an error that says {said!r}",
        expected=f"the endpoint in it, {endpoint.host} and {endpoint.port}",
    )
