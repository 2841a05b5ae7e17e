"""A KV cache arrives whole, however the stages lay theirs out."""

from dataclasses import replace

import torch

from fixtures.transfer import MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import KVLayout, KVOrder
from harness.transfer.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.layout.square", source="LMCache#4467: a packed cache read as another layout of the same shape")
def test_square(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """A cache whose axes all have one size is read along the right ones."""
    stage = boundary(layout=workload.square())
    for path, block_ids in (("prefetched", [1, 0]), ("received", [0, 1]), ("prefetched", [1])):
        request = f"{path}-{block_ids}"
        stage.send(request, block_ids=block_ids, seq_len=2 * len(block_ids), blocks=2)
        stage.check(stage.fetch(path, request), request)


@claim("transfer.layout.split", source="spec: keys and values packed in one tensor, or one tensor each")
@requires(Transfer.SPLIT_KV)
def test_split(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """Keys and values that lie in a tensor each arrive as keys and values."""
    check_layout(boundary, replace(workload.layout(), packed=False))
    check_layout(boundary, replace(workload.square(), packed=False))


@claim("transfer.layout.hnd", source="vllm#37940 (#37703, #37333): heads before tokens inside a block")
@requires(Transfer.HND)
def test_hnd(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """A cache with heads before tokens arrives token by token, also where a block has as many heads as tokens."""
    for layout in (workload.layout(), workload.square(), replace(workload.layout(), heads=workload.block_size + 1)):
        check_layout(boundary, replace(layout, order=KVOrder.HND))


@claim("transfer.layout.hnd_split", source="vllm#37940: heads before tokens, and a tensor each for keys and values")
@requires(Transfer.HND)
@requires(Transfer.SPLIT_KV)
def test_hnd_split(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """The same with keys and values in a tensor each."""
    check_layout(boundary, replace(workload.layout(), order=KVOrder.HND, packed=False))


@claim("transfer.layout.fp8", source="vLLM: kv_cache_dtype fp8_e4m3 and fp8_e5m2")
@requires(Transfer.FP8)
def test_fp8(boundary: MakeBoundary, judge: Judge) -> None:
    """Every bit pattern of both float8 formats arrives as it is, in the background and in the foreground."""
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        stage = boundary(dtype=dtype)
        for path in ("prefetched", "received"):
            request = f"{path}-{str(dtype).removeprefix('torch.')}"
            stage.send(request, kv=stage.workload.any_bits(stage.generator, stage.layout))
            stage.check(stage.fetch(path, request), request, finite=False)


@claim("transfer.layout.other_dtype", source="sglang#19398; related vllm#54338: bytes viewed as the receiver's dtype")
def test_other_dtype(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """A cache sent in one dtype is not delivered as another, be it as wide or not."""
    for sent, held in ((torch.float16, torch.bfloat16), (torch.float32, torch.float16), (torch.float8_e4m3fn, torch.float8_e5m2)):
        check_mismatch(boundary, workload.layout(dtype=sent), workload.layout(dtype=held))


@claim("transfer.layout.other_shape", source="sglang#19398, vllm#37940: a receiver must not serve a cache of another shape as its own")
def test_other_shape(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """A cache of other heads, head_dim or layers than the receiver's is not delivered, even where the sizes agree."""
    own = workload.layout()
    shapes = ({"heads": own.heads * 2, "head_dim": own.head_dim // 2}, {"layers": own.layers + 1}, {"heads": own.heads + 1})
    for shape in shapes:
        check_mismatch(boundary, replace(own, **shape), own)


def check_layout(boundary: MakeBoundary, layout: KVLayout) -> None:
    """A cache of this layout arrives on both paths, from blocks in any order."""
    __tracebackhide__ = True
    stage = boundary(layout=layout)
    for path in ("prefetched", "received"):
        stage.send(path, block_ids=[2, 0], seq_len=2 * layout.block_size - 1, blocks=3)
        stage.check(stage.fetch(path, path), path)


def check_mismatch(boundary: MakeBoundary, sent: KVLayout, held: KVLayout) -> None:
    """What a sender of layout `sent` sends, a receiver of layout `held` is not given; one of layout `sent` is."""
    __tracebackhide__ = True
    stage = boundary(layout=sent)
    other = boundary(layout=held, over=stage)
    for path in ("prefetched", "received"):
        stage.send(path)
        other.check_no_hit(other.fetch(path, path), path)
        stage.judge.taken(stage.fetched(path), "the payload was fetched by the receiver of the other layout")
        stage.settle()
        stage.send(f"{path}-alike")
        stage.check(stage.receive(f"{path}-alike"), f"{path}-alike")
