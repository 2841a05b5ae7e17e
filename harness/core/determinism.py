"""The determinism policy: applied before an engine boots, and recorded with every run.

torch is imported only when a policy is applied, after the environment that CUDA libraries read at start is set.
"""

from __future__ import annotations

import os
import random
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Policy:
    """What Assay asks of the numeric libraries. `cublas_workspace` is the value of CUBLAS_WORKSPACE_CONFIG (KiB:count)."""

    deterministic_algorithms: bool = True
    cudnn_benchmark: bool = False
    allow_tf32: bool = False
    cublas_workspace: str = ":4096:8"


def set_environment(policy: Policy) -> None:
    """What must stand in the environment before CUDA starts. A value that is set already is kept, and recorded as found."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", policy.cublas_workspace)


def apply(policy: Policy, seed: int) -> None:
    """Seed every generator and set torch's switches; an operation without a deterministic kernel warns rather than raises."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    # The same switch as use_deterministic_algorithms(..., warn_only=True), which would import torch's compiler to tell it too: 1.5 s.
    torch.set_deterministic_debug_mode("warn" if policy.deterministic_algorithms else "default")
    torch.backends.cudnn.benchmark = policy.cudnn_benchmark
    torch.backends.cudnn.allow_tf32 = policy.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = policy.allow_tf32


def in_force() -> dict[str, object]:
    """The policy as it stands now, read back from the libraries, with the attention backends that torch may choose from."""
    import torch

    backends = {
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
        "cudnn": torch.backends.cuda.cudnn_sdp_enabled(),
    }
    found = Policy(
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        allow_tf32=torch.backends.cuda.matmul.allow_tf32,
        cublas_workspace=os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
    )
    return {**asdict(found), "attention_backends": sorted(name for name, on in backends.items() if on)}
