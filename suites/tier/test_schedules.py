"""Requests, aborts, retractions, evictions and slow or failed copies in any order: each answer and each count is what is owed."""

import pytest

from fixtures.tier_schedules import TierSchedules
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=6, suite="tier-cpu")
register_cuda_ci(est_time=120, suite="tier-h100")


@claim("tier.schedule.short", source="protocol, whole; states that no single step reaches: sglang#11900, vllm#28787, LMCache#4133")
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.STEPPED)
@requires(TierCap.FLUSH)
@requires(TierCap.LAB)
def test_short(tier_schedules: TierSchedules, workload: Workload) -> None:
    """Whatever happens to the others, each request reuses what the policy says, and gives what it gives without a cache."""
    tier_schedules.draw(workload.schedules, workload.schedule_steps)


@pytest.mark.soak
@claim("tier.schedule.long", source="as tier.schedule.short; states that take many steps to reach")
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.STEPPED)
@requires(TierCap.FLUSH)
@requires(TierCap.LAB)
def test_long(tier_schedules: TierSchedules, workload: Workload) -> None:
    """Whatever happens to the others for long, each request reuses what the policy says, and gives what it gives without a cache."""
    tier_schedules.draw(workload.soak_schedules, workload.soak_steps)
