"""Tensors are counted from outside."""

import torch

from harness.core.memory import live_tensors


def test_a_tensor_that_is_kept_is_counted():
    before = live_tensors()
    kept = torch.zeros(100)

    after = live_tensors()

    assert after == {"tensors": before["tensors"] + 1, "bytes": before["bytes"] + kept.nbytes}


def test_a_tensor_that_is_gone_is_not():
    before = live_tensors()
    torch.zeros(100)

    assert live_tensors() == before
