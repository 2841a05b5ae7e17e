"""The determinism policy: applied, read back, and what was found in the environment is kept."""

# ruff: noqa: NPY002 - engines may draw from the legacy generator, so it is seeded too

import os
import random

import numpy
import pytest
import torch

from harness.core.determinism import Policy, apply, in_force, set_environment

NAME = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Whatever a test sets is as it was afterwards."""
    monkeypatch.setenv(NAME, "")
    # monkeypatch cannot: these are attributes of modules that torch answers for.
    backends = [(torch.backends.cudnn, "benchmark"), (torch.backends.cudnn, "allow_tf32"), (torch.backends.cuda.matmul, "allow_tf32")]
    switches = [(owner, name, getattr(owner, name)) for owner, name in backends]
    mode, states = torch.get_deterministic_debug_mode(), (random.getstate(), numpy.random.get_state(), torch.get_rng_state())
    yield
    for owner, name, value in switches:
        setattr(owner, name, value)
    torch.set_deterministic_debug_mode(mode)
    random.setstate(states[0])
    numpy.random.set_state(states[1])
    torch.set_rng_state(states[2])


OTHER = Policy(deterministic_algorithms=False, cudnn_benchmark=True, allow_tf32=True)


@pytest.mark.parametrize("policy", [Policy(), OTHER], ids=["default", "other"])
def test_what_is_applied_is_in_force(policy):
    """Each switch is read back as it was set, whatever stood before."""
    for other in (OTHER, Policy()):
        apply(other, 0)
    apply(policy, 0)

    found = in_force()
    assert {k: found[k] for k in ("deterministic_algorithms", "cudnn_benchmark", "allow_tf32")} == {
        "deterministic_algorithms": policy.deterministic_algorithms,
        "cudnn_benchmark": policy.cudnn_benchmark,
        "allow_tf32": policy.allow_tf32,
    }
    assert torch.backends.cudnn.allow_tf32 == policy.allow_tf32


def test_an_operation_without_a_deterministic_kernel_only_warns():
    """It is recorded and not refused."""
    apply(Policy(), 0)

    assert torch.is_deterministic_algorithms_warn_only_enabled()


@pytest.mark.parametrize("seed", [0, 1234, 2**40])
def test_every_generator_is_seeded(seed):
    """The same seed gives the same draws, another seed gives others."""

    def draws(seed):
        apply(Policy(), seed)
        return random.random(), numpy.random.random(), float(torch.rand(()))

    first = draws(seed)
    assert draws(seed) == first
    assert not set(first) & set(draws(seed + 1))


def test_the_environment_is_set_where_nothing_stands(monkeypatch):
    """CUDA libraries read it at start."""
    monkeypatch.delenv(NAME)
    set_environment(Policy(cublas_workspace=":16:8"))

    assert os.environ[NAME] == in_force()["cublas_workspace"] == ":16:8"


@pytest.mark.parametrize("found", [":16:8", ""])
def test_a_value_that_is_found_is_kept(monkeypatch, found):
    """And recorded as found, not as wished for; an unset one is recorded as empty."""
    monkeypatch.setenv(NAME, found)
    set_environment(Policy())

    assert os.environ[NAME] == in_force()["cublas_workspace"] == found
    monkeypatch.delenv(NAME)
    assert in_force()["cublas_workspace"] == ""


def test_attention_backends_are_recorded(monkeypatch):
    """Those that torch may choose from, by name."""
    monkeypatch.setattr(torch.backends.cuda, "flash_sdp_enabled", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "math_sdp_enabled", lambda: True)

    assert "math" in in_force()["attention_backends"]
    assert "flash" not in in_force()["attention_backends"]
