"""The lab inside a put: `store` and `damage`, of the connector engines and of the transfer engine's connectors."""

import os

import pytest

from harness.core.clock import SystemClock, VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.memory import MemoryConnectorEngine
from harness.transfer.engines.reference import ReferenceTransfer
from harness.transfer.engines.shm import ShmConnectorEngine
from harness.transfer.reference.lab import InjectedFailure, Pause

K = ("0", "1", "k")
CONFIG = EngineConfig("cpu", "cpu", {}, 0)
ENGINES = {
    "memory": lambda clock: MemoryConnectorEngine.build(CONFIG, clock),
    "shm": lambda clock: ShmConnectorEngine.build(CONFIG, clock),
    "transfer over memory": lambda clock: ReferenceTransfer.build(EngineConfig("cpu", "cpu", {"connector": "memory"}, 0), clock),
    "transfer over shm": lambda clock: ReferenceTransfer.build(EngineConfig("cpu", "cpu", {"connector": "shm"}, 0), clock),
}


@pytest.fixture(params=ENGINES)
def made(request):
    """An engine on a virtual clock, the clock, and a connector."""
    clock = VirtualClock()
    engine = ENGINES[request.param](clock)
    yield engine, clock, engine.connector()
    engine.close()


@pytest.mark.parametrize("size", [0, 1, 2, 5001])
def test_store_takes_time_half_way(made, size):
    """The put takes its lag, nothing is there meanwhile, and both halves arrive; without a lag it takes none."""
    engine, clock, connector = made
    data = os.urandom(size)
    seen = []
    enter = engine.lab.enter
    engine.lab.enter = lambda op: (seen.append((op, connector.get(*K))), enter(op))
    engine.lab.lag("store", 7)
    connector.put(*K, data)
    assert clock.now() == pytest.approx(0.007, abs=1e-9)
    assert seen == [("store", None)]
    assert bytes(connector.get(*K)[0]) == data
    engine.lab.lag("store", 0)
    connector.put(*K, data)
    assert clock.now() == pytest.approx(0.007, abs=1e-9)


def test_store_fails_once(made):
    """The put raises, and nothing is there; the next one works."""
    engine, _, connector = made
    engine.lab.fail_next("store")
    with pytest.raises(InjectedFailure, match="store failed, as the lab was told"):
        connector.put(*K, b"abc")
    assert connector.get(*K) is None
    connector.put(*K, b"abc")
    assert bytes(connector.get(*K)[0]) == b"abc"


@pytest.mark.parametrize("name", ENGINES)
def test_no_lab_on_wall_time(name):
    """Lags would make a run wait."""
    engine = ENGINES[name](SystemClock())
    assert engine.lab is None
    engine.close()


def test_what_the_labs_know():
    """Each its own operations; damage takes no time."""
    memory, shm = (ENGINES[name](VirtualClock()).lab for name in ("memory", "shm"))
    with pytest.raises(ValueError, match=r"unknown operation 'damage'; this lab knows store$"):
        memory.fail_next("damage")
    with pytest.raises(ValueError, match=r"unknown operation 'copy'; this lab knows store, damage$"):
        shm.lag("copy", 1)
    with pytest.raises(ValueError, match="damage takes no time"):
        shm.lag("damage", 1)


def test_a_pause_passes_other_operations():
    """And says nothing; that it stops its own is seen where a process is killed inside a put."""
    ear, mouth = os.pipe()
    os.set_blocking(ear, False)
    pause = Pause("store", mouth)
    pause.enter("copy")
    assert not pause.takes("damage")
    with pytest.raises(BlockingIOError):
        os.read(ear, 1)
    os.close(ear)
    os.close(mouth)
