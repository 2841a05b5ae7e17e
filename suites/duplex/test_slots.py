"""Slots come back however a session ends, and one session's failure is its own."""

from dataclasses import replace
from typing import Any

from fixtures.duplex import Stage
from fixtures.duplex_owed import check_phases
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.driver import Driver
from harness.duplex.protocol import Phase
from harness.duplex.script import DEFAULT, Admit, Hear, LabCall, Leave, Recycle, Script
from harness.duplex.sounds import Silence, Spoiled
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=4, suite="duplex-cpu")
register_cuda_ci(est_time=30, suite="duplex-h100")

QUICK = ("release", "cancel", "finish", "recycle")
"""Ways to end before the caller was heard."""
SLOW = ("finish", "fail", "cancel", "release")
"""Ways to end once it was."""
SLOW_EVERY = 5
"""One wave of sessions in so many is heard before it ends."""


@claim("duplex.slots.recycled_often", source="vllm-omni#5235 (review), #4929: what a session held is not given back")
def test_recycled_often(stage: Stage, judge: Judge, workload: Workload) -> None:
    """An engine holds as much after 200 recycles as before them, and still converses."""
    engine, slots = stage.engine, len(stage.slots)
    engine.open()
    before = dict(engine.usage())
    for number in range(workload.sessions):
        engine.recycle(number % slots, DEFAULT)
        if number % slots == slots - 1:
            engine.step(_silence(stage))

    judge.equal(dict(engine.usage()), before, f"what the engine holds after {workload.sessions} recycles", source="usage before them")
    driver = Driver(engine, Script(engine.prefill_ticks(DEFAULT) + engine.delay + 1, (Silence(),) * slots))
