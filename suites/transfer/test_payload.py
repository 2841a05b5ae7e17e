"""A KV cache arrives whole: the sender's bits, in the sender's order."""

import torch

from fixtures.transfer import MakeBoundary
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.payload.bits", source="seed checks 2: ours checks bits on a block table that holds every token")
def test_bits(boundary: MakeBoundary, judge: Judge) -> None:
    """A prefetched KV cache holds the sender's bits, token by token."""
    stage = boundary()
    sent, other = stage.send("request"), stage.send("other")
    judge.differ(sent.kv[0], other.kv[0], "two requests' caches")

    for request in ("request", "other"):
        stage.start(request)
        stage.check(stage.receiver.consume(request), request)


@claim("transfer.payload.received_bits", source="seed checks 2, endpoint: the foreground path carries the same payload")
def test_received_bits(boundary: MakeBoundary, judge: Judge) -> None:
    """A KV cache received in the foreground holds the sender's bits."""
    stage = boundary()
    stage.send("request")

    stage.check(stage.receive("request"), "request")


@claim("transfer.payload.any_bits", source="KV is bits: quantised caches and padding hold any pattern, and every dtype people serve")
def test_any_bits(boundary: MakeBoundary, judge: Judge) -> None:
    """Every bit pattern of every dtype arrives as it is: NaNs with their payloads, infinities, negative zero, subnormals."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        stage = boundary(dtype=dtype)
        request = f"request-{str(dtype).removeprefix('torch.')}"
        stage.send(request, kv=stage.workload.any_bits(stage.generator, stage.layout))
        stage.start(request)

        stage.check(stage.receiver.consume(request), request, finite=False)


@claim("transfer.payload.sizes", source="paged KV: sequences end anywhere in a block, and are short or long")
def test_sizes(boundary: MakeBoundary, judge: Judge) -> None:
    """A sequence of any length arrives whole: one token, around a block's edge, many blocks."""
    stage = boundary()
    block, most = stage.workload.block_size, stage.workload.many_blocks
    for seq_len in sorted({1, max(1, block - 1), block, block + 1, most * block - 1, most * block}):
        block_ids = list(range(-(-seq_len // block)))
        for how in ("prefetched", "received"):
            request = f"{how}-{seq_len}"
            stage.send(request, block_ids=block_ids, seq_len=seq_len, blocks=most)
            stage.check(stage.fetch(how, request), request)


@claim("transfer.payload.metadata", source="sglang#17259, #22716: a metadata slot reused before it is read")
def test_metadata(boundary: MakeBoundary, judge: Judge) -> None:
    """Of several requests sent before the first is fetched, each is told its own length, on both paths."""
    stage = boundary()
    lengths = range(1, stage.workload.seq_len + 1)
    for length in lengths:
        stage.send(f"request-{length}", seq_len=length)
    for length in reversed(lengths):
        path = "prefetched" if length % 3 else "received"
        stage.check(stage.fetch(path, f"request-{length}"), f"request-{length}")


@claim("transfer.payload.layer_order", source="TensorRT-LLM#16429, local-inference-lab/vllm#454: layers permuted where names sort 10 < 2")
def test_layer_order(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """Layer i arrives as layer i, also where there are more than ten."""
    stage = boundary(layers=workload.many_layers)
    stage.send("request")
    stage.start("request")

    stage.check(stage.receiver.consume("request"), "request")


@claim("transfer.payload.block_table", source="paged KV: a request's blocks lie anywhere, in any order")
def test_block_table(boundary: MakeBoundary, judge: Judge) -> None:
    """Rows arrive in block-table order, whatever the blocks' numbers: ascending, descending, with gaps, with ends like a run's."""
    stage = boundary()
    drawn = torch.randperm(stage.workload.many_blocks, generator=stage.generator)[:7].tolist()
    for number, block_ids in enumerate(([0, 1, 2], [4, 3, 2], [3, 5, 4, 6], [8, 0, 5], drawn)):
        request = f"request-{number}"
        seq_len = max(1, len(block_ids) * stage.workload.block_size - 1)
        stage.send(request, block_ids=block_ids, seq_len=seq_len, blocks=stage.workload.many_blocks)
        stage.start(request)
        stage.check(stage.receiver.consume(request), request)


@claim("transfer.payload.pages_untouched", source="paged KV: the sender's blocks belong to other requests too, and are reused once sent")
def test_pages_untouched(boundary: MakeBoundary, judge: Judge) -> None:
    """Sending changes nothing in the sender's pages, and what happens to them afterwards does not reach the payload."""
    stage = boundary()
    sent = stage.send("request")
    for layer, (kv, pages) in enumerate(zip(sent.kv, sent.pages, strict=True)):
        judge.same_bits(pages.cpu(), kv, f"layer {layer} pages", source="the pages before the send")

    for pages in sent.pages:
        pages.add_(1)
    judge.differ(sent.pages[0].cpu(), sent.kv[0], "the pages before and after they are reused")

    stage.start("request")
    stage.check(stage.receiver.consume("request"), "request")


@claim("transfer.payload.kept", source="vllm-omni: payloads lie in pooled receive buffers; a later transfer must not reach a delivered one")
def test_kept(boundary: MakeBoundary, judge: Judge) -> None:
    """A delivered payload keeps its bits while later requests are sent, fetched and delivered."""
    stage = boundary()
    delivered = {}
    for request in ("first", "second", "third"):
        stage.send(request)
        if request == "third":
            delivered[request] = stage.receive(request)
        else:
            stage.start(request)
            delivered[request] = stage.receiver.consume(request)

    for request, delivery in delivered.items():
        stage.check(delivery, request)
