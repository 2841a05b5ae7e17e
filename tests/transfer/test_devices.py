"""Payloads on a CUDA device; on a machine without one only that a host copy is left alone."""

import pytest
import torch
from harness.transfer.reference.devices import DeviceCopy, record_use

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.reference import ReferenceTransfer
from harness.transfer.protocol import KVPayload, Outcome, TransferConfig
from harness.transfer.workload import Workload, expected_rows

WORK = Workload()
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def test_no_device_means_no_copy():
    """The payload itself comes back; host tensors need no stream."""
    payload = KVPayload((torch.ones(1, 4, 8),), (torch.ones(1, 4, 8),))
    assert DeviceCopy().to(payload, None) is payload
    record_use(payload)


@needs_cuda
@pytest.mark.parametrize("source", ["cpu", "cuda"])
def test_a_prefetch_lands_on_its_device(source):
    """From host or device pages: the right bits, on the device, usable on another stream at once."""
    engine = ReferenceTransfer.build(EngineConfig("gpu", "cuda", {}, 0), VirtualClock())
    manager = engine.deploy(None, engine.connector(), TransferConfig(WORK.layout()))
    kv = [pages.to(source) for pages in WORK.kv(torch.Generator().manual_seed(6))]
    for _ in range(20):
        manager.send("r", kv, [3, 0, 2], 10)
        manager.start_prefetch("r", WORK.endpoint, torch.device("cuda", 0))
        delivery = manager.consume("r")
        assert delivery.outcome is Outcome.HIT, delivery.reason
        with torch.cuda.stream(torch.cuda.Stream()):
            past = manager.apply(delivery)
            for layer, pages in enumerate(kv):
                keys, values = expected_rows(pages.cuda(), [3, 0, 2], 10)
                assert past.keys[layer].is_cuda
                assert torch.equal(past.keys[layer], keys)
                assert torch.equal(past.values[layer], values)
    engine.close()
