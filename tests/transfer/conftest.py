"""Both sides of a stage boundary, deployed on the reference engine, with the witness between them."""

import pytest
import torch

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.reference import ReferenceTransfer
from harness.transfer.protocol import TransferConfig
from harness.transfer.witness import WitnessConnector
from harness.transfer.workload import Workload, expected_rows

WORK = Workload()


NOTHING_HELD = {"futures": 0, "workers": 0, "copies": 0, "held_bytes": 0, "landing_bytes": 0, "leases": 0}
"""The usage of a manager that was never used, or has let go of everything and stopped."""


class Stage:
    """Both sides of a boundary on a virtual clock."""

    def __init__(self):
        self.clock = VirtualClock()
        self.engine = ReferenceTransfer.build(EngineConfig("cpu", "cpu", {"connector": "memory"}, 0), self.clock)
        self.wire = WitnessConnector(self.engine.connector())
        self.kv = WORK.kv(torch.Generator().manual_seed(3))
        self.sender = self.deploy(sends=True, receives=False)

    def deploy(self, topology=None, layers=2, layout=None, **config):
        return self.engine.deploy(topology, self.wire, TransferConfig(layout or WORK.layout(layers), **config))

    def send(self, request_id, block_ids=(0, 1, 2), seq_len=10, **options):
        self.sender.send(request_id, self.kv, block_ids, seq_len, **options)

    def fetch(self, receiver, how, request_id="r"):
        """On the path that `how` names: `prefetch` or `receive`."""
        if how == "receive":
            return receiver.receive(request_id, WORK.endpoint, 1.0)
        receiver.start_prefetch(request_id, WORK.endpoint)
        return receiver.consume(request_id)

    def is_sent(self, delivery, block_ids=(0, 1, 2), seq_len=10):
        want = [expected_rows(pages, list(block_ids), seq_len) for pages in self.kv]
        return all(
            torch.equal(k, want_k) and torch.equal(v, want_v)
            for k, v, (want_k, want_v) in zip(delivery.payload.keys, delivery.payload.values, want, strict=True)
        )


@pytest.fixture
def stage():
    stage = Stage()
    yield stage
    stage.engine.close()
    stage.wire.close()


@pytest.fixture
def receiver(stage):
    return stage.deploy()
