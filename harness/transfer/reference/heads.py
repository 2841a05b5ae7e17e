"""Which KV heads lie on which tensor-parallel rank, and what each receiver takes from each sender."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """Heads that one sender rank gives one receiver rank: `count` of them, from `source_head` of the sender's, to `target_head` on."""

    source_rank: int
    target_rank: int
    source_head: int
    target_head: int
    count: int


class HeadPlan:
    """How `total` heads move from `source_tp` ranks to `target_tp` ranks.

    With as many heads as ranks, or more, each rank holds its own; with fewer, several ranks hold a copy of one head. ValueError where heads
    and ranks do not divide, and for ranks outside their stage.
    """

    def __init__(self, total: int, source_tp: int, target_tp: int) -> None:
        self._total, self._source_tp, self._target_tp = total, source_tp, target_tp
        for name, ranks in (("source_tp", source_tp), ("target_tp", target_tp)):
            if min(total, ranks) < 1:
                raise ValueError(f"{total} KV heads over {name} = {ranks} ranks; both are at least 1")
            if max(total, ranks) % min(total, ranks):
                raise ValueError(f"{total} KV heads do not divide over {name} = {ranks} ranks, nor these over them")

    def received_by(self, target_rank: int) -> list[Piece]:
        """What the rank takes, in the order of its own heads; heads that come from one sender stand in one piece."""
        _check_rank("target_tp", target_rank, self._target_tp)
        pieces: list[Piece] = []
        for place, head in enumerate(self._heads(target_rank, self._target_tp)):
            source = self._holder(head, target_rank)
            at = self._heads(source, self._source_tp).index(head)
            last = pieces[-1] if pieces else None
            if last and last.source_rank == source and last.source_head + last.count == at:
                pieces[-1] = Piece(source, target_rank, last.source_head, last.target_head, last.count + 1)
            else:
                pieces.append(Piece(source, target_rank, at, place, 1))
        return pieces

    def sent_by(self, source_rank: int) -> list[Piece]:
        """What the rank gives, receiver after receiver; nothing where other ranks hold its heads too and give them."""
        _check_rank("source_tp", source_rank, self._source_tp)
        every = (piece for target in range(self._target_tp) for piece in self.received_by(target))
        return [piece for piece in every if piece.source_rank == source_rank]

    def _heads(self, rank: int, ranks: int) -> list[int]:
        """The model's heads that a rank holds, in order."""
        if ranks > self._total:
            return [rank * self._total // ranks]
        each = self._total // ranks
        return list(range(rank * each, (rank + 1) * each))

    def _holder(self, head: int, target_rank: int) -> int:
        """The sender of a head. Of several that hold copies, receivers ask by turns; equal ranks where both stages are alike."""
        if self._source_tp <= self._total:
            return head // (self._total // self._source_tp)
        copies = self._source_tp // self._total
        return head * copies + target_rank % copies


def _check_rank(name: str, rank: int, ranks: int) -> None:
    if not 0 <= rank < ranks:
        raise ValueError(f"topology: tp_rank = {rank} of a stage of {name} = {ranks}")
