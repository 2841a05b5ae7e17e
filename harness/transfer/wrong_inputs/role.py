"""Wrong answers about who pulls which shard."""

from __future__ import annotations

from typing import Any

from harness.transfer.protocol import ReceiveRole
from harness.transfer.wrong_inputs.register import wrong_input


@wrong_input("transfer/world-of-one-leads", "topology:ReceivePlan._alone", "transfer.role.single")
def world_of_one_leads(original: Any, plan: Any) -> bool:
    """A world of one is treated as a group."""
    return not plan._initialised


@wrong_input("transfer/tp-is-a-group", "topology:ReceivePlan._grouped", "transfer.role.pure_tp")
def tp_is_a_group(original: Any, plan: Any) -> bool:
    """Tensor parallelism alone makes leaders and followers."""
    return plan._at.tp_rank > 0 or original(plan)


@wrong_input("transfer/cfg-rank-ignored", "topology:ReceivePlan._leads_group", "transfer.role.cfg_group")
def cfg_rank_ignored(original: Any, plan: Any) -> bool:
    """Every rank of a CFG group leads."""
    return plan._at.sp_rank == 0


@wrong_input("transfer/sp-leads-at-tp-zero", "topology:ReceivePlan._leads_group", "transfer.role.sp_group")
def sp_leads_at_tp_zero(original: Any, plan: Any) -> bool:
    """Only the group of TP rank 0 has a leader."""
    return original(plan) and plan._at.tp_rank == 0


@wrong_input("transfer/nobody-leads-world", "topology:ReceivePlan._leads_world", "transfer.role.hsdp_leader")
def nobody_leads_world(original: Any, plan: Any) -> bool:
    """A world without tensor parallelism has followers only."""
    return False


@wrong_input("transfer/all-lead-world", "topology:ReceivePlan._leads_world", "transfer.role.hsdp_follower")
def all_lead_world(original: Any, plan: Any) -> bool:
    """A world without tensor parallelism has leaders only."""
    return True


@wrong_input("transfer/uninitialised-leads", "topology:ReceivePlan._alone", "transfer.role.uninitialised")
def uninitialised_leads(original: Any, plan: Any) -> bool:
    """A rank without a parallel state takes itself for one of a group."""
    return plan._initialised and original(plan)


@wrong_input("transfer/follower-pulls", "manager:TransferManager._pulls", "transfer.role.follower_never_fetches")
def follower_pulls(original: Any, manager: Any) -> bool:
    """A follower fetches its leader's payload."""
    return manager._config.receives


@wrong_input("transfer/leader-does-not-pull", "manager:TransferManager._pulls", "transfer.role.owner_fetches")
def leader_does_not_pull(original: Any, manager: Any) -> bool:
    """Only ranks that are LOCAL fetch."""
    return original(manager) and manager.role is ReceiveRole.LOCAL
