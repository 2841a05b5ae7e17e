"""The tiny network of the embedded prefix-cache server, made once for all of these tests."""

import pytest
import torch

from harness.core.threads import one_thread
from harness.tier.reference.config import SIZES
from harness.tier.reference.executor import Executor
from harness.tier.reference.network import Network

CPU = torch.device("cpu")


@pytest.fixture(scope="package", autouse=True)
def single_thread():
    with one_thread():
        yield


@pytest.fixture(scope="package")
def network():
    return Network(SIZES["tiny"], CPU)


@pytest.fixture
def executor(network):
    made = Executor(network, page=16, device_pages=64, host_pages=32, device=CPU)
    yield made
    made.close()
