"""The embedded engine of four slots, made once for all of these tests."""

import pytest
import torch

from tests.duplex.lockstep import build, sound


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    """Products of this size take longer on two threads than on one, and a hundred times as long on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def shared(one_thread):
    engine = build()
    engine.open()
    yield engine
    engine.close()


@pytest.fixture(scope="package")
def untouched(shared):
    """The frames of eight ticks from the boot on, while all hear their tones."""
    shared.open()
    return [shared.step(sound(tick, tick, tick, tick)) for tick in range(8)]


@pytest.fixture
def batch(shared):
    """Just booted."""
    shared.open()
    return shared
