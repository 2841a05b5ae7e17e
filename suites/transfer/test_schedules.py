"""Sends, prefetches, consumes, aborts, restarts and failures of several requests, in any order, are answered as the protocol promises."""

from typing import Any

import pytest

from fixtures.schedules import Schedules
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.transfer.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=3, suite="transfer")
register_cuda_ci(est_time=10, suite="transfer-h100")

DIRECTED = {
    "a payload is delivered once": "send a 10; start a; consume a; consume a; start a; consume a; receive a",
    "an id that was dropped comes again": "start a; start b; send a 9; receive a; send b 5; consume b; send a 4; start a; consume a",
    "an aborted id comes again": "send a 10; start a; abort a; send a 7; start a; consume a; send a 3; abort a; receive a",
    "aborted under way, then sent anew": "send a 10; hold; start a; abort a; send a 5; start a; release; consume a",
    "another request after an abort under way": "send a 10; send b 10; hold; start a; abort a; start b; abort a; consume b; consume a",
    "a failure does not stick": "send a 10; send b 5; fail get; start a; consume a; start b; consume b; receive a",
    "a failed copy can be repeated": "send a 10; fail copy; start a; consume a; start a; consume a",
    "a failure in the foreground": "send a 10; fail copy; receive a; fail get; receive a; receive a",
    "a new receiver knows of nothing": "send a 10; start a; restart receiver; consume a; send b 5; start b; consume b",
    "a receiver restarts under way": "send a 10; hold; start a; restart receiver; send b 10; start b; consume b",
    "what was sent outlives its sender": "send a 10; restart sender; start a; consume a; send a 5; restart sender; receive a",
    "a sender restarts while a fetch is under way": "send d 1; hold; start d; restart sender; release; consume d",
    "abort, restart, and the same id": "send a 10; start a; abort a; restart receiver; send a 5; start a; consume a",
    "nothing comes, then something": "start a; consume a; receive a; send a 10; start a; consume a",
    "a stop and a new receiver": "send a 10; start a; stop; start a; consume a; restart receiver; send b 10; start b; consume b",
    "time passes": "start a; advance 50; send a 10; advance 200; consume a; receive b; send b 10; start b; advance 200; consume b",
}


@claim("transfer.schedule.directed", source="each is a bug of a real engine or a sentence of the protocol, put in a row with others")
@requires(Transfer.PREFETCH_DEPTH)
def test_directed(schedules: Schedules, engine: Any) -> None:
    """Schedules that engines are known to go wrong on are answered as the protocol promises."""
    schedules.play(DIRECTED)


@claim("transfer.schedule.short", source="protocol, whole; the bugs that no single step shows: vllm-omni#4772, sglang#24527, vllm#53079")
@requires(Transfer.PREFETCH_DEPTH)
def test_short(schedules: Schedules, engine: Any, workload: Workload) -> None:
    """Any schedule of sends, prefetches, consumes, aborts, restarts and failures is answered as the protocol promises."""
    schedules.draw(workload.schedules if engine.lab else workload.schedules_on_wall_clock, steps=16)


@pytest.mark.soak
@claim("transfer.schedule.long", source="as transfer.schedule.short; states that take many steps to reach")
@requires(Transfer.PREFETCH_DEPTH)
def test_long(schedules: Schedules, engine: Any, workload: Workload) -> None:
    """Any long schedule of sends, prefetches, consumes, aborts, restarts and failures is answered as the protocol promises."""
    schedules.draw(workload.soak_schedules, steps=26)
