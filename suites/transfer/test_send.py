"""A send hands over what it was given, or says that it did not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fixtures.ranks import MakeRanks
from fixtures.transfer import Boundary, MakeBoundary, on_device
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import Outcome
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")

NOTHING = {"segments": 0, "bytes": 0}


@claim("transfer.send.put_fails", source="vllm#50754, TensorRT-LLM#12542, nixl#2047: a sender that fails to post and only logs")
def test_put_fails(boundary: MakeBoundary, judge: Judge) -> None:
    """A send whose connector raises, or does not take the payload, is told to the caller, and the next one works."""
    stage = boundary()
    for name, trouble in (("raises", partial(stage.witness.fail, "put")), ("refuses", stage.witness.refuse_puts)):
        trouble()
        judge.refused(partial(stage.send, name), f"a send whose connector {name}")
        judge.taken(len(stage.witness.calls("put", key_contains=name)), "the connector was asked to take the payload")
        stage.witness.mend()
    judge.equal(dict(stage.witness.usage()), NOTHING, "what the connector holds")

    stage.send("raises")
    stage.check(stage.receive("raises"), "raises")


@claim("transfer.send.block_outside", source="spec: a block id out of range gets a clear error; nothing is sent for it")
def test_block_outside(boundary: MakeBoundary, judge: Judge) -> None:
    """A block table that names a block outside the cache, above or below, alone or among others, is refused."""
    stage = boundary()
    last = stage.workload.blocks - 1
    for block_ids in ([0, last + 1, 1], [0, 1, last + 1], [-1, 0, 1], [0, -last - 2], [2**40]):
        check_refused(stage, judge, f"a send from blocks {block_ids}", block_ids=block_ids)


@claim("transfer.send.seq_len", source="spec: a negative seq_len gets a clear error")
def test_seq_len(boundary: MakeBoundary, judge: Judge) -> None:
    """A sequence of no tokens, or fewer, is refused."""
    stage = boundary()
    for seq_len in (0, -1, -stage.workload.seq_len, -(2**40)):
        check_refused(stage, judge, f"a send of {seq_len} tokens", seq_len=seq_len)


@claim("transfer.send.seq_len_huge", source="protocol: blocks that hold fewer than seq_len tokens are sent whole")
def test_seq_len_huge(boundary: MakeBoundary, judge: Judge) -> None:
    """A sequence longer than any cache is refused, or the blocks are sent whole, and their rows are counted."""
    stage = boundary()
    for seq_len in (2**31, 2**63 - 1):
        request = f"request-{seq_len}"
        given = stage.draw(request, seq_len=seq_len)
        stage.sent[request] = given
        judge.attempt(partial(stage.sender.send, request, given.pages, given.block_ids, seq_len))
        delivery = stage.receive(request, timeout=0)
        if delivery.outcome is Outcome.HIT:
            stage.check(delivery, request)
        else:
            stage.check_nothing(delivery, Outcome.MISS, request)


@claim("transfer.send.empty_table", source="spec: bad input gets a clear error")
def test_empty_table(boundary: MakeBoundary, judge: Judge) -> None:
    """A request without blocks is refused."""
    check_refused(boundary(), judge, "a send of no blocks", block_ids=[])


@claim("transfer.send.other_layout", source="sglang#19398: what is sent is not what the layout says")
def test_other_layout(boundary: MakeBoundary, judge: Judge) -> None:
    """A cache of another dtype, shape or number of layers than the manager's layout is refused."""
    stage = boundary()
    right = stage.draw("request").kv
    wrong: dict[str, list[torch.Tensor]] = {
        "another dtype of the same width": [layer.view(torch.int32) for layer in right],
        "half the width": [layer.half() for layer in right],
        "a layer too few": right[1:],
        "a layer too many": [*right, right[0]],
        "more heads": [torch.cat((layer, layer), dim=3) for layer in right],
        "shorter heads": [layer[..., 1:].contiguous() for layer in right],
        "keys alone": [layer[:1] for layer in right],
    }
    for what, kv in wrong.items():
        pages = [on_device(layer.contiguous(), stage.device) for layer in kv]
        send = partial(stage.sender.send, "request", pages, stage.workload.block_ids, stage.workload.seq_len)
        judge.refused(send, f"a send of a cache of {what}")
        judge.equal(dict(stage.witness.usage()), NOTHING, f"what the connector holds after a send of {what}")

    stage.send("request")
    stage.check(stage.receive("request"), "request")


@claim("transfer.send.live_id", source="vllm#10583, #27987: two requests in flight under one client id share state")
def test_live_id(boundary: MakeBoundary, judge: Judge) -> None:
    """A second send under an id that is live is refused, and the first payload is delivered whole."""
    stage = boundary()
    first = stage.send("request")
    judge.refused(partial(stage.send, "request", seq_len=1), "a send under a live id")
    stage.sent["request"] = first
    stage.check(stage.receive("request"), "request")

    stage.send("request", seq_len=1)
    stage.check(stage.receive("request"), "request")


@claim("transfer.send.live_shard", source="vllm#10583: an id is live while any part of what was sent under it is still to be read")
@requires(Transfer.HEAD_SLICING)
def test_live_shard(ranks: MakeRanks, judge: Judge) -> None:
    """An id of which one receiver rank has its shard is still live: a second send is refused, and the other rank is given the first."""
    stages = ranks(1, 2, total=4)
    first, second = stages.receivers
    stages.send("request")
    first.check(first.receive("request"), "request")

    sender = stages.senders[0]
    again = partial(sender.sender.send, "request", sender.draw("request").pages, sender.workload.block_ids, sender.workload.seq_len)
    judge.refused(again, "a send of an id with a shard that was not read")
    second.check(second.receive("request"), "request")


@claim("transfer.send.readers_and_lease", source="spec: bad input gets a clear error")
@requires(Transfer.READERS)
@requires(Transfer.LEASE)
def test_readers_and_lease(boundary: MakeBoundary, judge: Judge) -> None:
    """No readers, or a lease that ends before it began, is refused."""
    stage = boundary()
    for how in ({"readers": 0}, {"readers": -1}, {"lease": 0.0}, {"lease": -1.0}):
        check_refused(stage, judge, f"a send with {how}", **how)


def check_refused(stage: Boundary, judge: Judge, what: str, **how: Any) -> None:
    """The send raises, nothing is held for it, and a good one under the same id arrives."""
    __tracebackhide__ = True
    send: Callable[[], Any] = partial(stage.send, "request", **how)
    judge.refused(send, what)
    judge.equal(dict(stage.witness.usage()), NOTHING, f"what the connector holds after {what}")
    stage.send("request")
    stage.check(stage.receive("request"), "request")
