"""Faults that prove the proof: a null fault, which no check may notice, and a canary, which many must."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.core.faults import Role, fault
from harness.duplex.faults.register import REFERENCE


@fault("duplex/null", seam=f"{REFERENCE}.tick:Tick.codes", role=Role.NULL)
def null(original: Any, tick: Any, frame: torch.Tensor) -> torch.Tensor:
    """Nothing is wrong."""
    return original(tick, frame)


@fault(
    "duplex/canary",
    seam=f"{REFERENCE}.runner:Runner.run",
    role=Role.CANARY,
    claims=[
        "duplex.isolation.recycle",
        "duplex.isolation.anywhere",
        "duplex.isolation.back_to_back",
        "duplex.isolation.two_at_once",
        "duplex.isolation.during_prefill",
        "duplex.isolation.after_wrap",
        "duplex.neighbours.audio",
        "duplex.neighbours.persona",
        "duplex.neighbours.pause",
        "duplex.neighbours.finish",
        "duplex.neighbours.cancel",
        "duplex.neighbours.admission",
        "duplex.schedule.short",
    ],
)
def canary(original: Any, runner: Any) -> Any:
    """The last bit of every sample tells how many samples of the whole batch are above zero, and who takes part."""
    odd = (int((runner.host.pcm > 0).sum()) + int(runner.host.control.sum())) % 2
    outcome = original(runner)
    return replace(outcome, audio=(outcome.audio.view(torch.int32) ^ odd).view(torch.float32))
