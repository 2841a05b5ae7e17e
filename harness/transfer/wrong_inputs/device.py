"""Wrong answers about overlap and about device memory. Those of a card are planted where there is one."""

from __future__ import annotations

import threading
from typing import Any

import torch

from harness.core.clock import TICK
from harness.transfer.protocol import Delivery
from harness.transfer.wrong_inputs.register import wrong_input


@wrong_input("transfer/waits-once-more", "prefetch:PrefetchTable._await_end", "transfer.overlap.hidden")
def waits_once_more(original: Any, table: Any, job: Any) -> None:
    """A request waits a little although its payload is there."""
    original(table, job)
    table._clock.wait(lambda: False, TICK)


@wrong_input("transfer/foreground-costs-nothing", "lab:ReferenceLab.enter", "transfer.overlap.foreground")
def foreground_costs_nothing(original: Any, lab: Any, op: str) -> None:
    """A copy in the foreground takes no time."""
    if threading.current_thread() is not threading.main_thread():
        original(lab, op)


@wrong_input("transfer/copy-queues", "landing:DeviceCopy.to", "transfer.device.beside_compute")
def copy_queues(original: Any, copy: Any, data: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy begins when the device has nothing else to do."""
    torch.cuda.synchronize(device)
    return original(copy, data, device)


@wrong_input("transfer/use-not-recorded", "manager:record_use", "transfer.device.stream_safe")
def use_not_recorded(original: Any, delivery: Delivery) -> None:
    """The allocator is not told which stream reads the payload."""


@wrong_input("transfer/stays-on-host", "landing:DeviceCopy.to", "transfer.device.lands")
def stays_on_host(original: Any, copy: Any, data: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A prefetch for a device leaves the payload in host memory."""
    return data.cpu()


@wrong_input("transfer/over-the-host", "sender:Sender._encoded", "transfer.device.same_card")
def over_the_host(original: Any, sender: Any, *shard: Any) -> torch.Tensor:
    """A payload leaves the card, although its receiver is there too."""
    return original(sender, *shard).cpu()
