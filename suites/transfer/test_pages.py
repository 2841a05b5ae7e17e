"""A payload received into the receiver's own pages, and one of which the receiver has the first tokens already."""

from dataclasses import replace

import torch

from fixtures.transfer import Boundary, MakeBoundary, on_device
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.protocol import KVLayout, KVOrder, LayerKV, Pages
from harness.transfer.workload import Workload, expected_rows, laid_out, tokens_first
from markers import register_ci, register_cuda_ci

register_ci(est_time=1, suite="transfer")
register_cuda_ci(est_time=2, suite="transfer-h100")


@claim("transfer.pages.skip", source="lightseekorg/tokenspeed#293: a partial hit; DESIGN: skip_tokens")
@requires(Transfer.SKIP_TOKENS)
def test_skip(boundary: MakeBoundary, judge: Judge) -> None:
    """A receiver that has the first tokens is given those behind them: none, some, up to a block's edge or over it, all."""
    stage = boundary()
    block = stage.workload.block_size
    for skip in (0, 1, block - 1, block, block + 1, stage.workload.seq_len):
        for path in ("prefetched", "received"):
            request = f"{path}-{skip}"
            stage.send(request)
            stage.check(stage.fetch(path, request, skip_tokens=skip), request, skip=skip)


@claim("transfer.pages.skip_after_failure", source="vllm#49250, #49252: after a rejected load, a recompute from a stale count")
@requires(Transfer.SKIP_TOKENS)
def test_skip_after_failure(boundary: MakeBoundary, judge: Judge) -> None:
    """A fetch begins where its own call says, whatever a failed one of the same request said before."""
    stage = boundary()
    stage.send("request")
    for skip in (stage.workload.block_size, 1):
        stage.witness.fail("get")
        for path in ("prefetched", "received"):
            stage.check_no_hit(stage.fetch(path, "request", skip_tokens=skip), "request")
        judge.taken(stage.fetched("request"), "the connector was asked, and raised")
        stage.witness.mend()

    stage.check(stage.receive("request"), "request")


@claim("transfer.pages.skip_too_much", source="DESIGN: bad input gets a clear error, nothing is lost")
@requires(Transfer.SKIP_TOKENS)
def test_skip_too_much(boundary: MakeBoundary, judge: Judge) -> None:
    """A receiver that skips more tokens than there are, or fewer than none, is given nothing, and the payload stays."""
    stage = boundary()
    stage.send("request")
    too_many = stage.receive("request", skip_tokens=stage.workload.seq_len + 1)
    stage.check_no_hit(too_many, "request")
    judge.refused(lambda: stage.receive("request", skip_tokens=-1), "a receive that skips -1 tokens")

    stage.check(stage.receive("request"), "request")


@claim("transfer.pages.into", source="DESIGN: receive into the pages of the receiver's own cache")
@requires(Transfer.INTO)
def test_into(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """Tokens go to the rows that the receiver's block table names for them, and every other row stays as it was."""
    for layout in (workload.layout(), replace(workload.layout(), packed=False, order=KVOrder.HND)):
        stage = boundary(layout=layout)
        for block_ids in ([0, 1, 2], [4, 1, 3]):
            request = f"request-{block_ids}"
            stage.send(request)
            check_into(stage, request, block_ids, skip=0)


@claim("transfer.pages.suffix", source="lightseekorg/tokenspeed#293 (comment): after a partial hit, fetched pages stored as the first ones")
@requires(Transfer.INTO)
@requires(Transfer.SKIP_TOKENS)
def test_suffix(boundary: MakeBoundary, judge: Judge) -> None:
    """Tokens behind the skipped ones go behind them, and the rows of the skipped ones stay as they were."""
    stage = boundary()
    block = stage.workload.block_size
    for skip in (1, block, block + 1):
        stage.send(f"skip-{skip}")
        check_into(stage, f"skip-{skip}", [3, 0, 2], skip)


@claim("transfer.pages.untouched_without_hit", source="dynamo#15079, vllm#20063: output from unrelated KV after a failed load")
@requires(Transfer.INTO)
def test_untouched_without_hit(boundary: MakeBoundary, judge: Judge) -> None:
    """A receive that is not a hit, by a miss, a failure or a payload cut short, leaves the receiver's pages as they were."""
    stage = boundary()
    stage.send("request")
    before, pages = own_pages(stage)
    for trouble in (lambda: stage.witness.fail("get"), lambda: stage.witness.damage("truncate")):
        trouble()
        stage.check_no_hit(stage.receive("request", into=pages), "request")
        stage.witness.mend()
    stage.check_no_hit(stage.receive("nobody", into=pages), "nobody")
    judge.taken(stage.fetched("request"), "the connector was asked")
    check_cache(stage, pages.kv, before, "pages after receives that were no hits")

    stage.check_hit(stage.receive("request", into=pages), "request")


@claim("transfer.pages.no_room", source="DESIGN: bad input gets a clear error, nothing is lost")
@requires(Transfer.INTO)
def test_no_room(boundary: MakeBoundary, judge: Judge) -> None:
    """Pages that the tokens do not fit, or that do not exist, are not written to, and the payload can still be received."""
    stage = boundary()
    stage.send("request")
    before, pages = own_pages(stage)
    outside = stage.workload.blocks
    for block_ids in ([0], [0, 1, outside], [0, 1, -1], [0, 0, 1]):
        # Whether the call raises or the delivery says so: it is no hit.
        delivery = judge.attempt(lambda ids=block_ids: stage.receive("request", into=Pages(pages.kv, ids)))
        if delivery is not None:
            stage.check_no_hit(delivery, f"request into blocks {block_ids}")
        check_cache(stage, pages.kv, before, f"pages after a receive into blocks {block_ids}")

    stage.check_hit(stage.receive("request", into=pages), "request")


def own_pages(stage: Boundary, block_ids: list[int] | None = None) -> tuple[list[torch.Tensor], Pages]:
    """A receiver's paged cache full of other requests' rows: a copy of it, and what the engine is handed."""
    before = stage.workload.kv(stage.generator, stage.layout)
    kv = [on_device(laid_out(layer, stage.layout), stage.device) for layer in before]
    return before, Pages(kv, block_ids or stage.workload.block_ids)


def check_into(stage: Boundary, request: str, block_ids: list[int], skip: int) -> None:
    """The request's tokens behind `skip` stand where the block table says, and nothing else changed."""
    __tracebackhide__ = True
    before, pages = own_pages(stage, block_ids)
    delivery = stage.receive(request, into=pages, skip_tokens=skip)
    stage.check_hit(delivery, request)
    stage.judge.equal(delivery.valid_tokens, stage.sent[request].tokens - skip, f"{request}: rows put into pages")
    check_cache(stage, pages.kv, [written(stage, request, layer, block_ids, skip, i) for i, layer in enumerate(before)], request)


def written(stage: Boundary, request: str, cache: torch.Tensor, block_ids: list[int], skip: int, layer: int) -> torch.Tensor:
    """The oracle: one layer of the receiver's cache once the request's rows are in it, token by token."""
    given = stage.sent[request]
    expected = cache.clone()
    keys, values = expected_rows(given.kv[layer], given.block_ids, given.seq_len)
    size = stage.layout.block_size
    for token in range(skip, len(keys)):
        expected[:, block_ids[token // size], token % size] = torch.stack((keys[token], values[token]))
    return expected


def check_cache(stage: Boundary, kv: list[LayerKV], expected: list[torch.Tensor], what: str) -> None:
    """The receiver's whole cache holds these bits."""
    __tracebackhide__ = True
    layout: KVLayout = stage.layout
    for layer, (got, want) in enumerate(zip(kv, expected, strict=True)):
        axes = ("part", "block", "row", "head", "dim")
        source = "the rows sent, among those that were there"
        stage.judge.same_bits(tokens_first(got, layout), want, f"{what}: layer {layer}", source=source, axes=axes)
