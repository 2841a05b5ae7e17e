"""Wrong answers about what the ranks of a receiver stage are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.transfer.protocol import Delivery, KVPayload, Outcome
from harness.transfer.reference.errors import TransferError
from harness.transfer.wrong_inputs.register import wrong_input

ON_CARDS = ("transfer.cards.shared", "transfer.cards.four_shared", "transfer.cards.sequence", "transfer.cards.four_follower_dies")


@wrong_input("transfer/first-tensor-for-all-on-cards", "announce:_view", *ON_CARDS)
@wrong_input("transfer/first-tensor-for-all", "announce:_view", "transfer.world.hsdp")
def first_tensor_for_all(original: Any, place: dict[str, Any], flat: Any) -> Any:
    """A follower reads each of its tensors from the start of the buffer."""
    return original({**place, "offset": 0}, flat)


@wrong_input("transfer/one-group-of-shards-on-cards", "distribute:Distributor._members", "transfer.cards.four_sequence")
@wrong_input("transfer/one-group-of-shards", "distribute:Distributor._members", "transfer.world.sp_shards")
def one_group_of_shards(original: Any, distributor: Any) -> Any:
    """The ranks of every shard follow the first leader."""
    members, leader = original(distributor)
    everybody = sorted(rank for ranks in members.values() for rank in ranks)
    return {0: everybody}, {0: leader[0]}


@wrong_input("transfer/followers-ask-too", "manager:TransferManager._pulls", "transfer.world.leader_asks")
def followers_ask_too(original: Any, manager: Any) -> bool:
    """A follower asks the connector for what its leader will give it."""
    return manager._config.receives


@wrong_input(
    "transfer/first-branch-for-all-on-cards", "distribute:Distributor._share", "transfer.cards.branches", "transfer.cards.four_branches"
)
@wrong_input("transfer/first-branch-for-all", "distribute:Distributor._share", "transfer.world.cfg_branches")
def first_branch_for_all(original: Any, distributor: Any, deliveries: Sequence[Delivery]) -> Delivery:
    """Every rank of a CFG group is given the first branch."""
    return deliveries[0]


@wrong_input("transfer/miss-becomes-failure", "announce:Announcement.of", "transfer.world.miss_told")
def miss_becomes_failure(original: Any, cls: Any, request_id: str, deliveries: Sequence[Delivery]) -> Any:
    """Followers are told of a failure where the leader only missed."""
    told = [replace(d, outcome=Outcome.FAILED) if d.outcome is Outcome.MISS else d for d in deliveries]
    return original(cls, request_id, told)


@wrong_input("transfer/reason-kept-back", "announce:Announcement.of", "transfer.world.failure_told")
def reason_kept_back(original: Any, cls: Any, request_id: str, deliveries: Sequence[Delivery]) -> Any:
    """Followers are told that it failed, and not why."""
    return original(cls, request_id, [replace(d, reason="") for d in deliveries])


@wrong_input(
    "transfer/lost-group-is-hit-on-cards", "distribute:Distributor._follow", "transfer.cards.leader_dies", "transfer.cards.four_leader_dies"
)
@wrong_input("transfer/lost-group-is-hit", "distribute:Distributor._follow", "transfer.world.leader_dies", "transfer.world.leader_dies_far")
def lost_group_is_hit(original: Any, distributor: Any, request_id: str, deliveries: Sequence[Delivery]) -> Delivery:
    """A follower that lost its leader goes on with an empty payload."""
    try:
        return original(distributor, request_id, deliveries)
    except TransferError:
        return Delivery(Outcome.HIT, KVPayload((), ()))


@wrong_input("transfer/follower-buffer-reused", "distribute:Distributor._follow", "transfer.world.kept")
def follower_buffer_reused(original: Any, distributor: Any, request_id: str, deliveries: Sequence[Delivery]) -> Delivery:
    """A follower is given every payload in the tensors of its first one."""
    delivery = original(distributor, request_id, deliveries)
    if delivery.payload is None:
        return delivery
    held = vars(distributor).setdefault("held", delivery.payload)
    for ours, theirs in zip(held.keys + held.values, delivery.payload.keys + delivery.payload.values, strict=True):
        ours.copy_(theirs)
    return replace(delivery, payload=held)


@wrong_input("transfer/all-on-the-first-card", "distribute:Distributor._card", "transfer.cards.own_card")
def all_on_the_first_card(original: Any, distributor: Any) -> Any:
    """Every rank is given its payload on the first card."""
    return torch.device("cuda", 0)


@wrong_input("transfer/source-rank-dropped-on-cards", "shards:Addressing.received", "transfer.cards.join")
def source_rank_dropped(original: Any, addresses: Any, request_id: str, base: Any) -> Any:
    """Only the first sender rank is asked."""
    return original(addresses, request_id, base)[:1]
