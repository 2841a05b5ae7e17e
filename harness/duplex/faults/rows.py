"""Faults of the batch: rows that write, read or are moved where they must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.duplex.faults.register import catalogued
from harness.duplex.reference.prompt import NO_EMBEDDING
from harness.duplex.reference.tick import Field


@catalogued(
    "row0-broadcast",
    "tick:Tick.codes",
    claims=["duplex.neighbours.audio", "duplex.history.caller"],
    source="vllm-omni#4415 (#4316, #4355)",
)
def row0_broadcast(original: Any, tick: Any, frame: torch.Tensor) -> torch.Tensor:
    """Every row speaks what row 0 says."""
    codes = original(tick, frame)
    return codes[:1].expand_as(codes)


@catalogued(
    "graph-pad-writes-slot",
    "ring:RingKV.visit",
    claims=["duplex.history.one_pass_wrapped", "duplex.rows.poisoned"],
    source="vllm#43810, #43869",
)
def graph_pad_writes_slot(original: Any, ring: Any, active: torch.Tensor) -> Any:
    """A row that takes no part writes to index -1: the last cell of the last row that does."""
    visit = original(ring, active)
    last = (active * torch.arange(1, ring.rows + 1, device=active.device)).max() * ring.context - 1
    return visit._replace(cells=torch.where(active, visit.cells, last.clamp(min=0)))


@catalogued(
    "graph-bakes-branch",
    "runner:Runner.capture",
    claims=["duplex.history.one_pass"],
    source="vllm-omni#7416 (comment)",
)
def graph_bakes_branch(original: Any, runner: Any) -> Callable[[], Any]:
    """At capture nobody is in prefill, and so every replay leaves the voice's embeddings out."""
    play = original(runner)

    def baked() -> Any:
        runner._given.control[:, Field.EMBEDDING] = NO_EMBEDDING
        return play()

    return baked


@catalogued(
    "seed-needs-neighbour",
    "slots:RowTable.seat",
    claims=["duplex.neighbours.draws"],
    source="vllm#51226; related tenstorrent/tt-metal#53802",
)
def seed_needs_neighbour(original: Any, table: Any, row: int, seed: int | None) -> None:
    """Sampled sessions that sit beside each other share one generator."""
    others = list(table._draws.values())
    original(table, row, seed)
    if seed is not None and others:
        table._draws[row] = others[0]


@catalogued(
    "swap-aliases-state",
    "slots:RowTable.move",
    claims=["duplex.rows.moved"],
    source="vllm#51890",
)
def swap_aliases_state(original: Any, table: Any, held: Any, source: int, row: int) -> None:
    """A session's draws go with it to its new row, and stay in the old one too."""
    draws = held.get(source)
    original(table, held, source, row)
    if draws is not None:
        table._draws.setdefault(source, draws)
