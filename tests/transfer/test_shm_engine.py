"""The engine of the connectors in shared memory."""

from pathlib import Path

import pytest

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.core.verdict import Unavailable
from harness.transfer.engines import shm as shm_engine
from harness.transfer.engines.reference import ReferenceTransfer
from harness.transfer.engines.shm import ShmConnectorEngine
from harness.transfer.reference.shm_transport import unavailable

K = ("0", "1", "k")


def test_where_there_is_no_shared_memory(tmp_path):
    """The reason names the place; here there is some."""
    assert unavailable() is None
    assert unavailable(tmp_path / "none") == f"{tmp_path / 'none'} does not exist: no shared memory is mounted there"
    assert "is no tmpfs" in unavailable(tmp_path)
    assert "is no tmpfs but proc" in unavailable(Path("/proc"))


def test_a_transfer_engine_over_it_is_unavailable_with_it(monkeypatch):
    """With its reason; over another connector it runs."""
    monkeypatch.setattr(shm_engine, "unavailable", lambda: "no shared memory")
    with pytest.raises(Unavailable, match="no shared memory"):
        ReferenceTransfer.build(EngineConfig("cpu", "cpu", {"connector": "shm"}, 0), VirtualClock())
    ReferenceTransfer.build(EngineConfig("cpu", "cpu", {"connector": "memory"}, 0), VirtualClock()).close()


def build(**options):
    return ShmConnectorEngine.build(EngineConfig("cpu", "cpu", options, 0), VirtualClock())


def test_the_engine_counts_and_closes_its_connectors():
    """`usage` adds up what all of them hold; `close` removes them and their transports."""
    engine = build(checksum="off", limit="100")
    first = engine.connector()
    second, third = engine.connector(first.address), engine.connector()
    first.put(*K, b"abc")
    second.put("0", "1", "other", b"de")
    third.put(*K, b"f")
    assert engine.usage() == {"segments": 3, "bytes": 6}
    engine.close()
    assert engine.usage() == {"segments": 0, "bytes": 0}
    assert not Path(first.address).exists()
    assert not Path(third.address).exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"speed": "9"}, r"unknown options \['speed'\]"),
        ({"checksum": "yes"}, "checksum = 'yes'; it is on or off"),
        ({"limit": "1 GiB"}, "limit = '1 GiB'; give bytes"),
    ],
)
def test_the_engine_refuses_options(options, match):
    """What it does not know, it names."""
    with pytest.raises(ValueError, match=match):
        build(**options)
