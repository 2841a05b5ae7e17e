"""Puts a described rank in place of vLLM-Omni's parallel state, so that one process can stand for any rank of a stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from harness.transfer.protocol import Topology


@contextmanager
def parallel_state(topology: Topology | None) -> Iterator[None]:
    """Inside the block the engine finds the groups of `topology`; None leaves its parallel state as it is, not initialised."""
    if topology is None:
        yield
        return
    from vllm_omni.diffusion.distributed import parallel_state as groups
    from vllm_omni.distributed.omni_connectors import kv_transfer_manager as manager

    world = _group(topology.world_size, topology.rank)
    cfg = _group(topology.cfg_size, topology.cfg_rank)
    sp = _group(topology.sp_size, topology.sp_rank)
    with ExitStack() as stack:
        # The manager imported the two TP functions by name; the others it looks up in their module at each use.
        stack.enter_context(
            patch.multiple(manager, get_local_tp_rank=lambda: topology.tp_rank, get_tp_world_size=lambda: topology.target_tp)
        )
        stack.enter_context(
            patch.multiple(
                groups,
                get_world_group=lambda: world,
                get_cfg_group=lambda: cfg,
                get_classifier_free_guidance_world_size=lambda: cfg.world_size,
                get_classifier_free_guidance_rank=lambda: cfg.rank_in_group,
                get_sp_group=lambda: sp,
                get_sequence_parallel_world_size=lambda: sp.world_size,
                get_sequence_parallel_rank=lambda: sp.rank_in_group,
            )
        )
        yield


def _group(size: int, rank: int) -> SimpleNamespace:
    return SimpleNamespace(world_size=size, rank_in_group=rank)
