"""What tensors there are in this process: an outside look at memory that an engine does not count itself."""

from __future__ import annotations

import gc

import torch


def live_tensors() -> dict[str, int]:
    """`tensors` that Python can still reach, and the `bytes` of their elements, on every device; a view counts as what it shows."""
    gc.collect()
    # By type: isinstance asks an object for its class, and some warn of that.
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return {"tensors": len(found), "bytes": sum(tensor.numel() * tensor.element_size() for tensor in found)}
