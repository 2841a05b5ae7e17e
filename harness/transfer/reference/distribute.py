"""A leader's payload for the followers of its group, over torch.distributed (gloo on the CPU, NCCL on CUDA devices)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from harness.transfer.protocol import Delivery, Outcome, ReceiveRole, Topology
from harness.transfer.reference.announce import Announcement, flattened, rebuilt
from harness.transfer.reference.errors import TransferError
from harness.transfer.reference.topology import ReceivePlan

TIMEOUT = 10.0
"""Seconds that one collective step waits for the other ranks."""

LONGEST_HEADER = 1 << 20
"""Bytes of an announcement: a thousand layers of several branches fit."""


class Distributor:
    """One rank's part in giving its group what the leader fetched.

    The groups are made by the first `spread`, which is collective over the whole stage: every rank of it calls. Later ones are collective
    over the group. After a step that failed the group is of no more use; the stage starts anew, with a new world.
    """

    def __init__(self, topology: Topology | None, timeout: float = TIMEOUT) -> None:
        self._at = topology or Topology()
        self._role = ReceivePlan(topology).role()
        self._timeout = timedelta(seconds=timeout)
        self._group: dist.ProcessGroup | None = None
        self._lost = False
        self._leader = 0

    def spread(self, request_id: str, deliveries: Sequence[Delivery] = ()) -> Delivery:
        """What this rank is given of the request: the leader's own, or a copy of it; of several, that of its CFG rank.

        A follower's tensors are views of one buffer of its own, where the backend works: on the host for gloo, on this rank's card
        for NCCL. MISS and FAILED are given on as they are, with their reason.

        ValueError for deliveries that do not fit the role or the group; the followers are told FAILED, with that text. TransferError where
        a rank does not answer within the timeout or is gone, or where the ranks ask for different requests.
        """
        if self._role is ReceiveRole.LOCAL:
            return self._own(deliveries)
        self._join()
        return self._lead(request_id, deliveries) if self._role is ReceiveRole.LEADER else self._follow(request_id, deliveries)

    def _own(self, deliveries: Sequence[Delivery]) -> Delivery:
        if len(deliveries) != 1:
            raise ValueError(f"{len(deliveries)} deliveries on a rank that is LOCAL; it passes its own")
        return deliveries[0]

    def _lead(self, request_id: str, deliveries: Sequence[Delivery]) -> Delivery:
        try:
            self._check(deliveries)
            announcement = Announcement.of(request_id, deliveries)
            text = announcement.to_json()
        except (ValueError, TypeError) as wrong:
            refused = Announcement.of(request_id, [Delivery(Outcome.FAILED, reason=f"the leader cannot distribute it: {wrong}")])
            self._announce(request_id, refused.to_json())
            raise
        self._announce(request_id, text)
        self._give(request_id, flattened(announcement, deliveries, self._device()))
        return self._share(deliveries)

    def _follow(self, request_id: str, deliveries: Sequence[Delivery]) -> Delivery:
        announcement = self._hear(request_id)
        buffer = torch.empty(announcement.nbytes, dtype=torch.uint8, device=self._device())
        # Also for a request that this rank did not ask for, so that the ranks keep step.
        self._give(request_id, buffer)
        if deliveries:
            raise ValueError(f"{len(deliveries)} deliveries on a follower; it passes none")
        if announcement.request_id != request_id:
            raise TransferError(f"the leader distributes request {announcement.request_id!r}, this rank asked for {request_id!r}")
        return self._share(rebuilt(announcement, buffer))

    def _share(self, deliveries: Sequence[Delivery]) -> Delivery:
        """Which of the leader's deliveries is this rank's."""
        return deliveries[self._at.cfg_rank if len(deliveries) > 1 else 0]

    def _check(self, deliveries: Sequence[Delivery]) -> None:
        if len(deliveries) not in (1, self._at.cfg_size):
            raise ValueError(f"{len(deliveries)} deliveries for a CFG group of {self._at.cfg_size}; pass one for all, or one for each rank")
        if any(delivery.outcome is Outcome.HIT and delivery.payload is None for delivery in deliveries):
            raise ValueError("a payload that was put into the leader's pages cannot be distributed; receive it without `into`")

    def _announce(self, request_id: str, text: bytes) -> None:
        """The length of the announcement, then itself, so that a follower knows what to expect."""
        tensor = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(self._device())
        self._give(request_id, torch.tensor([len(text)], dtype=torch.int64, device=self._device()))
        self._give(request_id, tensor)

    def _hear(self, request_id: str) -> Announcement:
        length = torch.zeros(1, dtype=torch.int64, device=self._device())
        self._give(request_id, length)
        if not 0 < int(length) <= LONGEST_HEADER:
            raise TransferError(f"request {request_id!r}: the leader announces {int(length)} bytes, of at most {LONGEST_HEADER}")
        text = torch.empty(int(length), dtype=torch.uint8, device=self._device())
        self._give(request_id, text)
        return Announcement.from_json(bytes(text.cpu().numpy()))

    def _give(self, request_id: str, tensor: torch.Tensor) -> None:
        """Broadcast `tensor` from the leader; nothing to do for one without bytes."""
        if tensor.numel():
            self._step(f"request {request_id!r}", lambda: dist.broadcast(tensor, self._leader, group=self._group, async_op=True))

    def _join(self) -> None:
        """Make the groups of the stage, all of them on every rank and in one order, as torch.distributed demands; keep this rank's."""
        if self._lost:
            raise TransferError(f"rank {self._at.rank} lost its group before; start the stage anew, with a new world")
        if self._group is not None:
            return
        self._check_world()
        members, leader = self._members()
        for shard in sorted(members):
            make = partial(dist.new_group, members[shard], timeout=self._timeout)
            group = self._waited("the groups of the stage", make)
            if self._at.rank in members[shard]:
                self._group, self._leader = group, leader[shard]

    def _check_world(self) -> None:
        if not dist.is_initialized():
            raise TransferError("distribute needs torch.distributed: call init_process_group before")
        world = (dist.get_rank(), dist.get_world_size())
        if world != (self._at.rank, self._at.world_size):
            raise ValueError(
                f"topology: rank {self._at.rank} of {self._at.world_size}, but torch.distributed has rank {world[0]} of {world[1]}"
            )

    def _members(self) -> tuple[dict[int, list[int]], dict[int, int]]:
        """The ranks of each group and its leader. Where the other ranks stand is asked of them: no order of ranks is presumed."""
        leads = self._role is ReceiveRole.LEADER
        mine = torch.tensor([self._shard(), leads], dtype=torch.int64, device=self._device())
        places = [torch.empty_like(mine) for _ in range(self._at.world_size)]
        self._step("the groups of the stage", lambda: dist.all_gather(places, mine, async_op=True))
        members: dict[int, list[int]] = {}
        leader: dict[int, int] = {}
        for rank, (shard, is_leader) in enumerate(place.tolist() for place in places):
            members.setdefault(shard, []).append(rank)
            if is_leader and leader.setdefault(shard, rank) != rank:
                raise ValueError(f"topology: ranks {leader[shard]} and {rank} both lead the group of shard {shard}")
        if members.keys() != leader.keys():
            raise ValueError(f"topology: nobody leads the groups of shards {sorted(members.keys() - leader.keys())}")
        return members, leader

    def _shard(self) -> int:
        """Ranks of one shard are a group; without tensor parallelism the whole stage is one."""
        return self._at.tp_rank if max(self._at.source_tp, self._at.target_tp) > 1 else 0

    def _step(self, what: str, begin: Callable[[], Any]) -> None:
        """One collective operation, waited for no longer than the timeout."""
        self._waited(what, lambda: begin().wait(self._timeout))

    def _waited(self, what: str, operation: Callable[[], Any]) -> Any:
        try:
            return operation()
        except RuntimeError as broken:
            reason = str(broken).splitlines()[0]
        # Outside the handler: the exception holds on to the group.
        self._leave()
        raise TransferError(f"{what}: rank {self._at.rank} ({self._role.value}) lost its group: {reason}")

    def _leave(self) -> None:
        """Hang up on the group. A broadcast goes from rank to rank: those behind this one would wait for it until their timeout."""
        group, self._group = self._group, None
        self._lost = True
        if group is None:
            return
        if dist.get_backend(group) == "nccl":
            # Destroying would wait for what the card still does: a broadcast that a dead rank left it in, which ends when it is aborted.
            group.abort()
        dist.destroy_process_group(group)

    def _device(self) -> torch.device:
        """Where the backend works: on the host for gloo, on this rank's own card for NCCL."""
        return self._card() if dist.get_backend() == "nccl" else torch.device("cpu")

    def _card(self) -> torch.device:
        """The card that the world was joined with; else ranks take the cards that they see in order, one each."""
        bound = getattr(dist.group.WORLD, "bound_device_id", None)
        return bound or torch.device("cuda", self._at.rank % torch.cuda.device_count())
