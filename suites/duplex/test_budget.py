"""A tick keeps the time of the audio in it."""

import time
from collections.abc import Callable

import pytest
import torch

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.workload import Workload
from markers import hardware_marks, register_cuda_ci

pytestmark = [pytest.mark.benchmark, *hardware_marks(res={"cuda": "H100"}, num_cards=1)]
register_cuda_ci(est_time=120, suite="duplex-h100-benchmark")


@claim("duplex.budget.tick", source="spec 1.4: 80 ms a tick at batch 2, 4, 8; silence in, 10 warm-up ticks, 100 timed")
@requires(Duplex.BUDGET)
def test_tick(build_stage: Callable[..., Stage], judge: Judge, workload: Workload) -> None:
    """At each batch size of the sweep, 99 of 100 ticks keep the time of the audio in them."""
    slowest = {}
    for batch in workload.sweep:
        stage = build_stage(batch=str(batch))
        torch.cuda.reset_peak_memory_stats()
        slowest[batch] = _p99(stage, judge, batch)
        judge.figure(f"peak at batch {batch}", torch.cuda.max_memory_allocated() / 2**30, "GiB")
        stage.engine.close()

    late = {batch: f"{ms:.1f} ms" for batch, ms in slowest.items() if ms > workload.budget_ms}
    judge.demand(not late, got=f"p99 by batch: {late}", expected=f"at most {workload.budget_ms:g} ms")


def _p99(stage: Stage, judge: Judge, batch: int) -> float:
    """Milliseconds a tick. Frames are on the CPU when a step returns, so that the device has done its work at both ends."""
    engine, load = stage.engine, stage.workload
    silence = torch.zeros(engine.slots, engine.frame_size)
    engine.open()
    for _ in range(load.warmup_ticks):
        engine.step(silence)
    taken = []
    for _ in range(load.timed_ticks):
        began = time.perf_counter()
        engine.step(silence)
        taken.append(1000 * (time.perf_counter() - began))
    taken.sort()
    median, p99 = taken[len(taken) // 2], taken[-1 - len(taken) // 100]
    judge.figure(f"median at batch {batch}", median, "ms")
    judge.figure(f"p99 at batch {batch}", p99, "ms", load.budget_ms)
    judge.figure(f"real-time factor at batch {batch}", median * engine.sample_rate / engine.frame_size / 1000, "of real time")
    return p99
