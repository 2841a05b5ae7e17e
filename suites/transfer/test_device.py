"""Payloads on a card: beside the compute that runs there, safe from its allocator, and without a detour over the host."""

import torch

from fixtures.transfer import Boundary, MakeBoundary
from harness.core.capabilities import Transfer, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.transfer.workload import Workload
from markers import hardware_marks, register_cuda_ci

pytestmark = hardware_marks(res={"cuda": "H100"}, num_cards=1)
register_cuda_ci(est_time=20, suite="transfer-h100")

CYCLES = 2_000_000_000
"""Of a card's clock, about a second: compute that a prefetch of some megabytes is to run beside."""


@claim("transfer.device.lands", source="spec: a payload prefetched to the device")
def test_lands(boundary: MakeBoundary, judge: Judge) -> None:
    """A payload prefetched for a device lies there, with the sender's bits."""
    stage = boundary()
    stage.send("request")
    stage.start("request")
    delivery = stage.receiver.consume("request")

    stage.check(delivery, "request")
    devices = {tensor.device for tensor in (*delivery.payload.keys, *delivery.payload.values)}
    judge.equal({device.type for device in devices}, {"cuda"}, "devices of the payload's tensors")


@claim("transfer.device.beside_compute", source="spec: copies on a side stream; vllm-omni: _bg_copy_stream")
def test_beside_compute(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """A prefetch of a large cache is consumed while the compute that was queued before it still runs: it did not queue behind."""
    stage = boundary(layers=workload.many_layers)
    # The first one pays for streams and buffers.
    fetch_large(stage, "warm-up")
    stage.send("request", **large(workload))
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    computed = torch.cuda.Event()
    computed.record()
    stage.start("request")
    delivery = stage.receiver.consume("request")
    still_running = not computed.query()

    judge.demand(still_running, got="the payload came after the compute had ended", expected="it comes while the compute runs")
    torch.cuda.synchronize()
    stage.check(delivery, "request")


@claim("transfer.device.stream_safe", source="spec: record_stream; PyTorch: memory of one stream is reused while another still reads it")
def test_stream_safe(boundary: MakeBoundary, judge: Judge, workload: Workload) -> None:
    """A payload that was freed while work queued on it has not run yet keeps its bits until that has run."""
    stage = boundary(layers=workload.many_layers)
    fetch_large(stage, "warm-up")
    later = [f"later-{number}" for number in range(3)]
    for request in ("request", *later):
        stage.send(request, **large(workload))
    stage.start("request")
    payload = stage.receiver.apply(stage.receiver.consume("request"))
    torch.cuda._sleep(CYCLES)
    kept = [(keys.clone(), values.clone()) for keys, values in zip(payload.keys, payload.values, strict=True)]
    computed = torch.cuda.Event()
    computed.record()
    del payload

    # Others land where memory is free: the same sizes, on the engine's own stream.
    for request in later:
        stage.start(request)
        stage.check_hit(stage.receiver.consume(request), request)
    judge.taken(int(not computed.query()), "later transfers landed before the queued work had run")
    torch.cuda.synchronize()
    given = stage.sent["request"]
    for layer, (keys, values) in enumerate(kept):
        for name, got, part in (("keys", keys, 0), ("values", values, 1)):
            expected = given.kv[layer][part][given.block_ids].flatten(0, 1)[: given.seq_len]
            judge.same_bits(got.cpu(), expected, f"layer {layer} {name}, read behind the compute", source="the sender's pages")


@claim("transfer.device.same_card", source="spec: device to device when both ends are on one card")
@requires(Transfer.DEVICE_TO_DEVICE)
def test_same_card(boundary: MakeBoundary, judge: Judge) -> None:
    """Between two stages on one card, over a connector that carries device memory, a payload stays on the card, and keeps its bits."""
    stage = boundary()
    for path in ("prefetched", "received"):
        stage.send(path)
        stage.check(stage.fetch(path, path), path)
    expected = {"cuda"} if stage.witness.carries_device_memory else {"cpu"}
    judge.equal({call.device for call in stage.witness.calls("put")}, expected, "where the connector was given payloads")


def large(workload: Workload) -> dict[str, object]:
    """A block table that fills the many blocks."""
    blocks = workload.many_blocks
    return {"block_ids": list(range(blocks)), "seq_len": blocks * workload.block_size, "blocks": blocks}


def fetch_large(stage: Boundary, request: str) -> None:
    """Send and fetch a large cache, and let go of it."""
    stage.send(request, **large(stage.workload))
    stage.start(request)
    stage.check_hit(stage.receiver.consume(request), request)
