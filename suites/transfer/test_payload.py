"""A KV cache arrives whole: the sender's bits, in the sender's order."""

from fixtures.transfer import MakeBoundary
from harness.core.claims import claim
from harness.core.judge import Judge
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.payload.bits", source="seed checks 2: ours checks bits on a block table that holds every token")
def test_bits(boundary: MakeBoundary, judge: Judge) -> None:
    """A prefetched KV cache holds the sender's bits, token by token."""
    stage = boundary()
    sent = stage.send("request")
    other = stage.send("other")
    judge.differ(sent.kv[0], other.kv[0], "two requests' caches")

    stage.start("request")
    stage.check(judge, stage.receiver.consume("request"), "request")
    stage.start("other")
    stage.check(judge, stage.receiver.consume("other"), "other")


@claim("transfer.payload.received_bits", source="seed checks 2, endpoint: the foreground path carries the same payload")
def test_received_bits(boundary: MakeBoundary, judge: Judge) -> None:
    """A KV cache received in the foreground holds the sender's bits."""
    stage = boundary()
    stage.send("request")

    stage.check(judge, stage.receive("request"), "request")


@claim("transfer.payload.layer_order", source="TensorRT-LLM#16429, local-inference-lab/vllm#454: layers permuted where names sort 10 < 2")
def test_layer_order(boundary: MakeBoundary, judge: Judge) -> None:
    """Layer i arrives as layer i, also where there are more than ten."""
    stage = boundary(layers=boundary().workload.many_layers)
    stage.send("request")
    stage.start("request")

    stage.check(judge, stage.receiver.consume("request"), "request")


@claim("transfer.payload.block_table", source="paged KV: a request's blocks lie anywhere, in any order")
def test_block_table(boundary: MakeBoundary, judge: Judge) -> None:
    """Rows arrive in block-table order, whatever the blocks' numbers."""
    stage = boundary()
    last = stage.workload.blocks - 1
    in_order, scattered = stage.workload.block_ids, [last - i for i in stage.workload.block_ids]
    judge.demand(in_order != scattered, got=f"block table {scattered}", expected="another order than ascending")

    for request, block_ids in (("ordered", in_order), ("scattered", scattered)):
        stage.send(request, block_ids=block_ids)
        stage.start(request)
        stage.check(judge, stage.receiver.consume(request), request)
