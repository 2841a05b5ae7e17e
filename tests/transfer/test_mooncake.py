"""The adapter of Mooncake: why it cannot run, and, where it is installed, what it makes of peers that are silent or lie."""

import json
import socket

import pytest

from harness.core.clock import SystemClock
from harness.core.spec import EngineConfig
from harness.transfer.engines import mooncake
from harness.transfer.engines.mooncake import MooncakeConnectorEngine
from harness.transfer.reference.tcp import TcpConnector

SLOT = ("0", "1", "k")


def build(**options):
    return MooncakeConnectorEngine.build(EngineConfig("cpu", "cpu", options, 0), SystemClock())


def test_missing_libraries_are_named_by_their_packages(monkeypatch):
    """Those that are there are not."""
    monkeypatch.setattr(mooncake, "LIBRARIES", {"libc.so.6": "libc6", "libnone.so.1": "libnone1", "libnil.so.2": "libnil2"})
    assert MooncakeConnectorEngine.available() == "mooncake needs libraries of the system: apt-get install libnone1 libnil2"
    monkeypatch.setattr(mooncake, "LIBRARIES", {"libc.so.6": "libc6"})
    assert MooncakeConnectorEngine.available() is None


def test_wrong_options_are_refused():
    """As those of connector/tcp."""
    with pytest.raises(ValueError, match=r"connector/mooncake: unknown options \['speed'\]"):
        build(speed="9")
    with pytest.raises(ValueError, match="option deadline = '0'"):
        build(deadline="0")


@pytest.fixture
def receiver():
    pytest.importorskip(
        "mooncake.engine", reason="mooncake-transfer-engine-non-cuda is not installed (make engine NAME=mooncake)", exc_type=ImportError
    )
    engine = build(deadline="0.3", limit="100")
    yield engine.connector()
    engine.close()


def described(peer="127.0.0.1:1", address=4096, size=10, checksum=None, number=0):
    """What a directory says of a payload."""
    return json.dumps({"peer": peer, "address": address, "size": size, "checksum": checksum, "number": number}).encode()


@pytest.fixture
def directory():
    connector = TcpConnector()
    yield connector
    connector.close()


@pytest.mark.parametrize(
    ("description", "kind", "said"),
    [
        (b"abc", ConnectionError, "no description of a payload"),
        (b"{}", ConnectionError, "no description of a payload"),
        (described(size=-1), ConnectionError, "no description of a payload"),
        (described(address="x"), ConnectionError, "no description of a payload"),
        (described(size=101), ConnectionError, r"announces 101 bytes, the limit is 100 \(option limit\)"),
        (described(), ConnectionError, r"mooncake 127.0.0.1:1: transfer_sync_read of 10 bytes ended with -1"),
    ],
)
def test_a_directory_that_lies(receiver, directory, description, kind, said):
    """Is told, and nothing is delivered."""
    directory.put(*SLOT, description)
    with pytest.raises(kind, match=said):
        receiver.get(*SLOT, directory.endpoint)


def test_a_session_that_is_silent(receiver, directory):
    """Its reader is not held longer than the deadline, although Mooncake itself waits for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        directory.put(*SLOT, described(peer=f"127.0.0.1:{silent.getsockname()[1]}"))
        with pytest.raises(TimeoutError, match=r"read of 10 bytes took longer than 0.3 s \(option deadline\)"):
            receiver.get(*SLOT, directory.endpoint)


def test_memory_that_is_not_registered_is_not_read(receiver, directory):
    """The sender's engine knows what it has registered: the bytes do travel by Mooncake."""
    sender = build().connector()
    sender.put(*SLOT, b"abc")
    told = json.loads(bytes(sender._directory.get(*SLOT)[0]))
    directory.put(*SLOT, json.dumps(told).encode())
    assert receiver.get(*SLOT, directory.endpoint)[0].tolist() == list(b"abc")

    sender.discard(*SLOT)
    with pytest.raises(ConnectionError, match="ended with -1"):
        receiver.get(*SLOT, directory.endpoint)
    sender.close()
