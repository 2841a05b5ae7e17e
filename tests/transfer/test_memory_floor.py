"""No prefetch where too little memory is free."""

import pytest
import torch

from harness.core.clock import VirtualClock
from harness.transfer.protocol import Outcome
from harness.transfer.reference.lab import ReferenceLab
from harness.transfer.reference.memory_floor import MemoryFloor
from harness.transfer.workload import Workload
from tests.transfer.conftest import NOTHING_HELD

SENDER = Workload().endpoint


@pytest.mark.parametrize(("free", "room"), [(0.0, False), (0.2499, False), (0.25, True), (1.0, True)])
@pytest.mark.parametrize("device", [None, torch.device("cpu"), torch.device("cuda", 0)])
def test_a_share_must_be_free(free, room, device):
    """Exactly the share is enough."""
    lab = ReferenceLab(VirtualClock())
    lab.free_memory = free
    assert MemoryFloor(0.25, lab).leaves_room(device) is room


def test_without_a_floor_nothing_is_asked():
    """A full device is none of its business."""
    lab = ReferenceLab(VirtualClock())
    lab.free_memory = 0.0
    assert MemoryFloor(0.0, lab).leaves_room(None)


@pytest.mark.parametrize("lab", [None, ReferenceLab(VirtualClock())])
@pytest.mark.parametrize(
    "device", [None, "cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]
)
def test_the_machine_is_asked_where_the_lab_says_nothing(lab, device):
    """A machine that runs this has some memory free, and not all of it."""
    where = device and torch.device(device)
    assert MemoryFloor(1e-9, lab).leaves_room(where)
    assert not MemoryFloor(1.0, lab).leaves_room(where)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_is_refused(share):
    """By the name of the option."""
    with pytest.raises(ValueError, match="min_free_device = "):
        MemoryFloor(share, None)


def test_below_the_floor_no_prefetch_begins_and_nothing_is_lost(stage):
    """The request is received in the foreground; with memory free again the next one is prefetched."""
    receiver = stage.deploy(min_free_device=0.5)
    stage.send("r")
    stage.engine.lab.free_memory = 0.4
    receiver.start_prefetch("r", SENDER)
    assert receiver.usage() == NOTHING_HELD
    assert stage.wire.calls("get") == []
    assert receiver.consume("r").outcome is Outcome.MISS
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))

    stage.send("r")
    stage.engine.lab.free_memory = 0.5
    receiver.start_prefetch("r", SENDER)
    assert receiver.usage()["futures"] == 1
    assert stage.is_sent(receiver.consume("r"))
