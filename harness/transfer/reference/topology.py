"""Which ranks of the receiver stage pull a payload, and which shard is theirs."""

from __future__ import annotations

from harness.transfer.protocol import KVLayout, ReceiveRole, Topology
from harness.transfer.reference.heads import HeadPlan, Piece


class ReceivePlan:
    """What one rank does to come by its KV cache. `topology` None: the parallel state was never initialised.

    ValueError for sizes below 1 and ranks outside their group.
    """

    def __init__(self, topology: Topology | None) -> None:
        self._initialised = topology is not None
        self._at = topology or Topology()
        self._check()

    def role(self) -> ReceiveRole:
        """LOCAL alone and in pure tensor parallelism; else one leader a group, and followers."""
        if self._alone() or (self._tensor_parallel() and not self._grouped()):
            return ReceiveRole.LOCAL
        leads = self._leads_group() if self._tensor_parallel() else self._leads_world()
        return ReceiveRole.LEADER if leads else ReceiveRole.FOLLOWER

    def sent(self, layout: KVLayout) -> list[Piece]:
        """The heads that this rank of the sender stage gives, one piece for each rank that it gives to. ValueError as `HeadPlan`."""
        at = self._at
        return self._heads(layout, at.source_tp).sent_by(at.tp_rank)

    def received(self, layout: KVLayout) -> list[Piece]:
        """The heads that this rank of the receiver stage takes, in the order of its own. ValueError as `HeadPlan`."""
        at = self._at
        return self._heads(layout, at.target_tp).received_by(at.tp_rank)

    def rank(self) -> int:
        """Among the ranks of this stage that listen on one host."""
        return self._at.tp_rank

    def _heads(self, layout: KVLayout, ranks: int) -> HeadPlan:
        total = layout.total_heads if layout.total_heads is not None else layout.heads * ranks
        if layout.heads != max(1, total // ranks):
            raise ValueError(f"layout: heads = {layout.heads} on each of {ranks} ranks, total_heads = {total}")
        return HeadPlan(total, self._at.source_tp, self._at.target_tp)

    def _alone(self) -> bool:
        return not self._initialised or self._at.world_size == 1

    def _tensor_parallel(self) -> bool:
        return self._at.source_tp > 1 or self._at.target_tp > 1

    def _grouped(self) -> bool:
        """Whether several ranks share each shard: guidance branches (CFG) or parts of the sequence (SP)."""
        return self._at.cfg_size > 1 or self._at.sp_size > 1

    def _leads_group(self) -> bool:
        """First of the CFG and SP groups: such a leader exists for each TP rank."""
        return self._at.cfg_rank == 0 and self._at.sp_rank == 0

    def _leads_world(self) -> bool:
        """Without tensor parallelism every rank of the stage (HSDP) shares one payload."""
        return self._at.rank == 0

    def _check(self) -> None:
        at = self._at
        groups = {
            "world_size": (at.rank, at.world_size),
            "target_tp": (at.tp_rank, max(at.source_tp, at.target_tp)),
            "cfg_size": (at.cfg_rank, at.cfg_size),
            "sp_size": (at.sp_rank, at.sp_size),
        }
        for name, (rank, size) in groups.items():
            if not 0 <= rank < size:
                raise ValueError(f"topology: rank {rank} in a group of {name} = {size}")
        if min(at.source_tp, at.target_tp) < 1:
            raise ValueError(f"topology: source_tp = {at.source_tp}, target_tp = {at.target_tp}; both are at least 1")
