"""Recycles, pauses, admissions, ends and failures in any order give every slot its phases, and the watched one its bits."""

import pytest

from fixtures.duplex_schedules import DuplexSchedules
from harness.core.claims import claim
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=4, suite="duplex-cpu")
register_cuda_ci(est_time=60, suite="duplex-h100")


@claim("duplex.schedule.short", source="protocol, whole; states that no single step reaches: vllm-omni#7670, vllm#51890, vllm#43810")
def test_short(duplex_schedules: DuplexSchedules, workload: Workload) -> None:
    """Whatever happens to the slots, each gives what its own occupants are owed, and no bit of it comes from the others."""
    friendly = duplex_schedules.stage.engine.lab is not None
    duplex_schedules.draw(workload.schedules if friendly else workload.schedules_elsewhere, workload.schedule_ticks)


@pytest.mark.soak
@claim("duplex.schedule.long", source="as duplex.schedule.short; states that take many ticks to reach, wrapped rings among them")
def test_long(duplex_schedules: DuplexSchedules, workload: Workload) -> None:
    """Whatever happens to the slots for long, each gives what its own occupants are owed, and no bit of it comes from the others."""
    duplex_schedules.draw(workload.soak_schedules, workload.soak_ticks)
