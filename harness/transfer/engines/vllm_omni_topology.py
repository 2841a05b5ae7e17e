"""How one process comes to stand for a rank of a vLLM-Omni stage: in the engine's own groups, or in described ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import torch.distributed as dist

from harness.transfer.protocol import Topology


@contextmanager
def described(topology: Topology) -> Iterator[None]:
    """Inside the block the engine finds groups of the described sizes and ranks, which carry nothing: one process can be any rank."""
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


def is_whole_world(topology: Topology) -> bool:
    """Whether this process is one of as many as the topology names, joined by torch.distributed."""
    return topology.world_size > 1 and dist.is_available() and dist.is_initialized() and dist.get_world_size() == topology.world_size


class Groups:
    """The engine's own groups over torch.distributed, as its workers make them. They are globals of the engine: one set a process."""

    def __init__(self) -> None:
        self._sizes: tuple[int, int, int] | None = None

    def join(self, topology: Topology) -> None:
        """A collective call, unless this process is in such groups already. ValueError where they place this rank otherwise."""
        from vllm_omni.diffusion.distributed import parallel_state

        cfg, sp, tp = sizes = topology.cfg_size, topology.sp_size, topology.target_tp
        if self._sizes != sizes:
            self.leave()
            # The CPU platform names no backend; gloo is what the engine itself adds to every group for objects.
            parallel_state.init_distributed_environment(topology.world_size, topology.rank, local_rank=topology.rank, backend="gloo")
            parallel_state.initialize_model_parallel(
                data_parallel_size=topology.world_size // (cfg * sp * tp),
                cfg_parallel_size=cfg,
                sequence_parallel_size=sp,
                ulysses_degree=sp,
                tensor_parallel_size=tp,
                backend="gloo",
            )
            self._sizes = sizes
        _check(topology)

    def leave(self) -> None:
        """Give up the groups. The world's stays, as torch's own does: the engine ends both together, and that one is not ours."""
        if self._sizes is not None:
            from vllm_omni.diffusion.distributed import parallel_state

            parallel_state.destroy_model_parallel()
            self._sizes = None


def _check(topology: Topology) -> None:
    from vllm_omni.diffusion.distributed import parallel_state
    from vllm_omni.distributed.omni_connectors.utils.kv_utils import get_local_tp_rank

    described = {"rank": topology.rank, "tp_rank": topology.tp_rank, "cfg_rank": topology.cfg_rank, "sp_rank": topology.sp_rank}
    found = {
        "rank": dist.get_rank(),
        "tp_rank": get_local_tp_rank(),
        "cfg_rank": parallel_state.get_classifier_free_guidance_rank(),
        "sp_rank": parallel_state.get_sequence_parallel_rank(),
    }
    if found != described:
        raise ValueError(f"topology says {described}, the engine's groups say {found}")


def _group(size: int, rank: int) -> SimpleNamespace:
    return SimpleNamespace(world_size=size, rank_in_group=rank)
