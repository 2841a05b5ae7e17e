"""A peer that restarts is a new one, whatever it is called."""

from typing import Any

import pytest

from fixtures.connector import SLOT, check_payload, payload
from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Connector
from markers import register_ci

pytestmark = pytest.mark.connector
register_ci(est_time=1, suite="connector")

RESTARTS = 3


@claim("connector.restart.fresh", source="nixl#2051: descriptors of a restarted peer with the same name are reused")
@requires(ConnectorCap.PROCESSES)
def test_fresh(engine: Any, carrier: Connector, judge: Judge, seed: int) -> None:
    """What a restarted sender puts under the names of its predecessor is read anew, not where that one had it."""
    for life in range(RESTARTS):
        sender = engine.connector(carrier.address)
        _, _, handle = sender.put(*SLOT, payload(seed + life))
        check_payload(judge, carrier.get(*SLOT, handle), payload(seed + life), f"payload of life {life}")
        judge.differ(payload(seed + life), payload(seed + life + 1), "payloads of two lives")
        sender.close()


@claim("connector.restart.gone", source="vllm-omni#4414: what a sender held goes with it")
@requires(ConnectorCap.PROCESSES)
def test_gone(engine: Any, carrier: Connector, judge: Judge, seed: int) -> None:
    """What a sender put is not found any more once it closed, and a peer's own payloads stay."""
    sender = engine.connector(carrier.address)
    _, _, own = carrier.put("0", "1", "own", payload(seed + 1))
    _, _, handle = sender.put(*SLOT, payload(seed))
    check_payload(judge, carrier.get(*SLOT, handle), payload(seed), "payload before the sender closed")
    sender.close()

    # A connector may tell that the sender is gone.
    found = judge.attempt(lambda: carrier.get(*SLOT, handle))
    judge.demand(found is None, got="a payload", expected="None or an error: its sender closed")
    check_payload(judge, carrier.get("0", "1", "own", own), payload(seed + 1), "the peer's own payload")


@claim("connector.restart.shared", source="protocol: address joins another process to this connector")
@requires(ConnectorCap.PROCESSES)
def test_shared(engine: Any, carrier: Connector, judge: Judge, seed: int) -> None:
    """What one peer put another gets, and is done with; the sender alone counts it, until then."""
    sender = engine.connector(carrier.address)
    _, _, handle = sender.put(*SLOT, payload(seed))
    judge.equal((sender.holds(*SLOT), carrier.holds(*SLOT)), (True, False), "held by sender and receiver after the put")
    check_payload(judge, carrier.get(*SLOT, handle), payload(seed), "payload")

    carrier.done(*SLOT, handle)

    judge.equal((sender.holds(*SLOT), sender.usage()["segments"]), (False, 0), "held by the sender when its reader is done")
    judge.equal(carrier.get(*SLOT, handle), None, "what get says then")
    sender.close()
