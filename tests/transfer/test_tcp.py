"""The tcp connector and its listener, on real sockets and between real processes."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.buffers import byte_view
from harness.transfer.engines.tcp import TcpConnectorEngine
from harness.transfer.protocol import Endpoint
from harness.transfer.reference import tcp_server
from harness.transfer.reference.errors import PayloadError, PeerBusy, PeerClosed, ProtocolError, TransportError, Unreachable
from harness.transfer.reference.tcp import TcpConnector, parse_address
from harness.transfer.reference.tcp_channel import Channel, Deadline
from harness.transfer.reference.tcp_frames import Frame, Op, Status, head_of
from harness.transfer.strangers import Proxy, Trouble, Way, What

SLOT = ("0", "1", "k")
LIMIT = 20.0
"""Seconds of wall time that anything here may take."""


@pytest.fixture
def connect():
    """Makes connectors, and closes them."""
    made = []

    def make(*args, **options):
        made.append(TcpConnector(*args, **options))
        return made[-1]

    yield make
    for connector in reversed(made):
        connector.close()


def raw_client(connector):
    """A socket that has connected, and may say anything."""
    return socket.create_connection((connector.endpoint.host, connector.endpoint.port), LIMIT)


def hello(client):
    """The frame that a listener begins with."""
    return Channel(client, "server").receive("hello", 4096, Deadline(LIMIT))


def ended(client):
    """Read to the end of the connection; what came."""
    came = b""
    while chunk := client.recv(1 << 16):
        came += chunk
    return came


def found(connector, handle=None, slot=SLOT):
    """What a get gives, as bytes."""
    got = connector.get(*slot, handle)
    return None if got is None else bytes(byte_view(got[0]))


def wait_for(connector, condition):
    """Until the connections that its listener serves are as asked."""
    listener = connector._listener
    with listener._changed:
        assert listener._changed.wait_for(lambda: condition(listener._connections), LIMIT)


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tcp-listener")]


@pytest.mark.parametrize("data", [b"", b"a", bytes(range(256)) * 5000], ids=len)
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda raw: torch.tensor(list(raw[:999]), dtype=torch.uint8)])
def test_what_was_put_is_got_at_home_and_elsewhere(connect, data, make):
    """Bytes and their number, through its own store, its own socket and another connector's."""
    sender = connect()
    receiver = connect(sender.address)
    data = make(data)
    size = len(data)
    assert sender.put(*SLOT, data) == (True, size, sender.endpoint)

    for connector, handle in ((sender, None), (sender, sender.endpoint), (receiver, None), (receiver, sender.endpoint)):
        assert connector.get(*SLOT, handle)[1] == size
        assert found(connector, handle) == bytes(byte_view(data))


def test_two_processes():
    """A process joins another by address, gets, is done; the sender then holds nothing."""
    child = (
        "from harness.transfer.reference.tcp import TcpConnector\n"
        "sender = TcpConnector(); sender.put('0', '1', 'k', bytes(range(200)) * 1000)\n"
        "print(sender.address, flush=True); input(); print(sender.usage()['segments'], flush=True)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as sender:
        receiver = TcpConnector(sender.stdout.readline().strip())
        assert found(receiver) == bytes(range(200)) * 1000
        receiver.done(*SLOT)
        assert sender.communicate("\n", timeout=LIMIT)[0] == "0\n"

        with pytest.raises(Unreachable, match=r"127.0.0.1:\d+: nobody takes a connection there"):
            receiver.get(*SLOT)
        receiver.close()


def test_readers_are_counted_wherever_they_are(connect):
    """The last one frees the payload."""
    sender = connect()
    receiver = connect(sender.address)
    sender.put(*SLOT, b"abc", readers=3)
    for left in (True, True, False):
        assert sender.holds(*SLOT)
        receiver.done(*SLOT)
        assert sender.holds(*SLOT) is left
    receiver.done(*SLOT)
    assert sender.usage() == {"segments": 0, "bytes": 0}


def test_a_reader_with_a_name_counts_once(connect):
    """At home and elsewhere, of one payload; it is another reader of the next one."""
    sender = connect()
    receiver = connect(sender.address)
    for _ in range(2):
        sender.put(*SLOT, b"abc", readers=2)
        receiver.done(*SLOT, reader="one")
        receiver.done(*SLOT, reader="one")
        sender.done(*SLOT, reader="one")
        assert sender.holds(*SLOT)
        receiver.done(*SLOT, reader="zw\u00f6lf")
        assert not sender.holds(*SLOT)
    with pytest.raises(ValueError, match="reader has 5000 bytes, more than 4096"):
        receiver.done(*SLOT, reader="r" * 5000)


def test_a_restarted_sender_serves_new_bytes(connect):
    """At the same port, under the same key, to a receiver that kept its connection to the old one."""
    receiver, old = connect(), TcpConnector()
    at = old.endpoint
    old.put(*SLOT, b"old")
    assert found(receiver, at) == b"old"
    old.close()

    new = connect(at=at)
    assert found(receiver, at) is None
    new.put(*SLOT, b"newer")
    assert found(receiver, at) == b"newer"
    assert new.endpoint == at


def test_a_lost_connection_is_replaced_once_and_not_for_done(connect):
    """A get may be asked again; a done may have been counted, so its loss is told."""
    sender, receiver = connect(), connect()
    sender.put(*SLOT, b"abc", readers=3)
    straight = Proxy(sender.endpoint)
    with straight:
        assert found(receiver, straight.endpoint) == b"abc"
    # The first connection ends inside its second reply; a new one is whole.
    length = len(head_of(Frame(Op.HELLO, 0))) + len(head_of(Frame(Op.GET, 0, slot=SLOT))) + 3
    with Proxy(sender.endpoint, Trouble(What.CUT, at=length + 1)) as proxy:
        assert [found(receiver, proxy.endpoint) for _ in range(3)] == [b"abc"] * 3
        assert found(receiver, proxy.endpoint) == b"abc"
    with Proxy(sender.endpoint, Trouble(What.CUT, at=length + 1)) as proxy:
        assert found(receiver, proxy.endpoint) == b"abc"
        with pytest.raises(PeerClosed, match="1 of 52 bytes of the header of the reply to DONE of 'k'"):
            receiver.done(*SLOT, proxy.endpoint)
        assert found(receiver, proxy.endpoint) == b"abc"
        receiver.done(*SLOT, proxy.endpoint, "by name")
    assert sender.holds(*SLOT)


def test_a_request_for_an_earlier_life_is_refused(connect):
    """As a forwarder would send it that reconnects to a restarted listener."""
    sender = connect()
    with raw_client(sender) as client:
        channel = Channel(client, "server")
        channel.send(Frame(Op.GET, hello(client).boot ^ 1, slot=SLOT), Deadline(LIMIT))
        reply = channel.receive("a reply", 4096, Deadline(LIMIT))
        assert (reply.status, bytes(reply.payload.tolist())) == (
            Status.REFUSED,
            b"the request is meant for an earlier listener at this endpoint",
        )
        assert ended(client) == b""


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(4096), bytes(range(256))], ids=["http", "zeros", "ramp"])
def test_garbage_is_refused_and_ends_one_connection_only(connect, garbage):
    """The client is told, and the next one is served."""
    sender = connect()
    sender.put(*SLOT, b"abc")
    with raw_client(sender) as client:
        hello(client)
        client.sendall(garbage)
        reply = Channel(client, "server").receive("a reply", 4096, Deadline(LIMIT))
        assert reply.status is Status.REFUSED
        assert b"expected a request, got bytes that begin with" in bytes(reply.payload.tolist())
    assert found(connect(), sender.endpoint) == b"abc"


@pytest.mark.parametrize("op", [Op.HELLO, Op.GET])
def test_a_frame_that_is_no_request_is_refused(connect, op):
    """A hello, and a get of no key."""
    sender = connect()
    with raw_client(sender) as client:
        channel = Channel(client, "server")
        slot = SLOT if op is Op.HELLO else None
        channel.send(Frame(op, hello(client).boot, slot=slot), Deadline(LIMIT))
        assert channel.receive("a reply", 4096, Deadline(LIMIT)).status is Status.REFUSED


def test_a_receiver_is_told_what_the_sender_refused(connect):
    """Here a request that changed on its way, in the sender's words."""
    sender, receiver = connect(), connect()
    said = r":\d+: refused GET of 'k': client .*: expected a request, got a header that changed"
    with Proxy(sender.endpoint, Trouble(What.FLIP, Way.UP, at=20)) as proxy, pytest.raises(ProtocolError, match=said):
        receiver.get(*SLOT, proxy.endpoint)


def test_a_client_that_drips_loses_its_connection_at_the_deadline(connect):
    """A byte now and then is no progress: the deadline is one of the request. Others are served meanwhile."""
    sender = connect(deadline=0.2)
    sender.put(*SLOT, b"abc")
    request = head_of(Frame(Op.GET, 0, slot=SLOT))
    with raw_client(sender) as client:
        hello(client)
        came = threading.Event()
        threading.Thread(target=lambda: (ended(client), came.set()), daemon=True).start()
        for at in range(len(request)):
            if came.wait(0.05):
                break
            client.sendall(request[at : at + 1])
            assert found(connect(), sender.endpoint) == b"abc" or at
        assert came.wait(LIMIT)
        assert at < len(request) - 1


def test_a_client_that_reads_nothing_loses_its_connection_at_the_deadline(connect):
    """With a reply that no socket buffer holds."""
    sender = connect(deadline=0.2)
    sender.put(*SLOT, bytes(1 << 25))
    with raw_client(sender) as client:
        Channel(client, "server").send(Frame(Op.GET, hello(client).boot, slot=SLOT), Deadline(LIMIT))
        wait_for(sender, lambda connections: not connections)


def test_silent_clients_make_room_for_others(connect):
    """Twice as many as are served at once: whoever asks is served, and the listener does not grow."""
    sender = connect()
    sender.put(*SLOT, b"abc")
    silent = [raw_client(sender) for _ in range(2 * tcp_server.CONNECTIONS)]
    for number in range(8):
        assert found(connect(), sender.endpoint) == b"abc", number
    wait_for(sender, lambda connections: len(connections) <= tcp_server.CONNECTIONS)
    for client in silent:
        client.close()


def test_a_listener_that_is_all_busy_says_so(connect, monkeypatch):
    """One that is in the middle of a request is not put out for another."""
    monkeypatch.setattr(tcp_server, "CONNECTIONS", 1)
    sender, receiver = connect(), connect()
    sender.put(*SLOT, b"abc")
    with raw_client(sender) as client:
        boot = hello(client).boot
        request = head_of(Frame(Op.GET, boot, slot=SLOT))
        client.sendall(request[:9])
        wait_for(sender, lambda connections: connections and not connections[0].idle)
        with pytest.raises(PeerBusy, match=r":\d+: serves as many connections as it may"):
            receiver.get(*SLOT, sender.endpoint)
        client.sendall(request[9:])
        assert bytes(Channel(client, "server").receive("a reply", 9, Deadline(LIMIT)).payload.tolist()) == b"abc"
        wait_for(sender, lambda connections: connections[0].idle)
        assert found(receiver, sender.endpoint) == b"abc"


def test_many_threads_and_many_payloads(connect):
    """Each get is given its own key's payload, whole, whoever asks at the same time."""
    sender, receiver = connect(), connect()
    for number in range(16):
        sender.put("0", "1", str(number), bytes([number]) * (5000 + number))
    got = [0] * 16

    def read(number):
        for _ in range(20):
            got[number] += found(receiver, sender.endpoint, ("0", "1", str(number))) == bytes([number]) * (5000 + number)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(16)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(LIMIT)
    assert got == [20] * 16


def test_close_frees_the_port_and_leaves_no_thread():
    """Also with clients connected; closing again does nothing, and nothing can be put any more."""
    assert threads() == []
    connector = TcpConnector()
    at = connector.endpoint
    connector.put(*SLOT, b"abc")
    with raw_client(connector) as client:
        hello(client)
        assert threads()
        connector.close()
        connector.close()
        assert threads() == []
        assert ended(client) == b""
    again = TcpConnector(at=at)
    assert again.endpoint == at
    again.close()
    assert connector.usage() == {"segments": 0, "bytes": 0}
    assert connector.get(*SLOT, at) is None
    with pytest.raises(ConnectionError, match="the connector is closed"):
        connector.put(*SLOT, b"abc")


def test_a_port_that_is_taken(connect):
    """The error names it, and what to change."""
    taken = connect().endpoint
    with pytest.raises(Unreachable, match=f"127.0.0.1:{taken.port}: cannot listen there .*; give another port, or 0 for any"):
        TcpConnector(at=taken)


@pytest.mark.parametrize("checksum", [True, False])
def test_memory_that_changed_is_noticed_with_a_checksum(connect, checksum):
    """At home and elsewhere; without one nobody can tell."""
    sender, receiver = connect(checksum=checksum), connect()
    sender.put(*SLOT, b"abc")
    sender._store.find(SLOT).data = memoryview(b"abd")
    for connector, handle in ((sender, None), (receiver, sender.endpoint)):
        if checksum:
            with pytest.raises(PayloadError, match="bytes changed since"):
                connector.get(*SLOT, handle)
        else:
            assert found(connector, handle) == b"abd"


def test_what_a_reader_holds_stays(connect):
    """After a discard, a replacement and a close."""
    sender, receiver = connect(), connect()
    sender.put(*SLOT, b"abc")
    here, there = sender.get(*SLOT)[0], receiver.get(*SLOT, sender.endpoint)[0]
    sender.put(*SLOT, b"xyz")
    sender.discard(*SLOT)
    sender.close()
    receiver.close()
    assert (bytes(here), bytes(there.tolist())) == (b"abc", b"abc")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.put(*SLOT, b"", readers=0), "readers = 0; a payload has at least one"),
        (lambda c: c.put(*SLOT, bytes(101)), r"a payload of 101 bytes, the limit is 100 \(option limit\)"),
        (lambda c: c.put("0", "1", "k" * 5000, b""), "key has 5000 bytes, more than 4096"),
        (lambda c: c.get(*SLOT, "127.0.0.1:5"), "handle '127.0.0.1:5': give the sender's Endpoint"),
        (lambda c: c.get(*SLOT, Endpoint("127.0.0.1", 0)), "give the sender's Endpoint"),
        (lambda c: c.done(*SLOT, Endpoint("127.0.0.1", 1 << 16)), "give the sender's Endpoint"),
    ],
)
def test_bad_input_is_a_value_error(connect, call, said):
    """It names what is wrong, and nothing is held."""
    connector = connect(limit=100)
    with pytest.raises(ValueError, match=said):
        call(connector)
    assert connector.usage() == {"segments": 0, "bytes": 0}


def test_addresses():
    """What a connector says of itself, and nothing else."""
    assert parse_address("tcp://127.0.0.1:80") == Endpoint("127.0.0.1", 80)
    for wrong in ("", "127.0.0.1:80", "tcp://:80", "tcp://host", "tcp://host:0", "tcp://host:65536", "tcp://host:1x", "shm://host:1"):
        with pytest.raises(ValueError, match="write tcp://host:port"):
            parse_address(wrong)


def test_a_name_that_leads_nowhere(connect):
    """Is unreachable, as a port is where nobody listens."""
    with pytest.raises(TransportError, match=r"nowhere\.invalid:5: nobody takes a connection there"):
        connect().get(*SLOT, Endpoint("nowhere.invalid", 5))


def build(**options):
    return TcpConnectorEngine.build(EngineConfig("cpu", "cpu", options, 0), VirtualClock())


def test_the_engine_counts_and_closes_its_connectors():
    """`usage` adds up what all of them hold; `close` ends them."""
    engine = build()
    first = engine.connector()
    second = engine.connector(first.address)
    first.put(*SLOT, b"abc")
    second.put(*SLOT, b"de")
    assert found(second) == b"abc"
    assert engine.usage() == {"segments": 2, "bytes": 5}
    engine.close()
    assert engine.usage() == {"segments": 0, "bytes": 0}
    assert threads() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speed": "9"}, r"unknown options \['speed'\]; it has checksum, deadline, limit"),
        ({"checksum": "yes"}, "option checksum = 'yes': write on or off"),
        ({"deadline": "0"}, "option deadline = '0': give seconds above 0"),
        ({"deadline": "nan"}, "give seconds above 0"),
        ({"deadline": "inf"}, "give seconds above 0"),
        ({"deadline": "soon"}, "give seconds above 0"),
        ({"limit": "0"}, "option limit = '0': give bytes, at least 1"),
        ({"limit": "1e6"}, "give bytes, at least 1"),
        ({"limit": "-1"}, "give bytes, at least 1"),
    ],
    ids=str,
)
def test_the_engine_refuses_wrong_options(options, said):
    """And names what to write."""
    with pytest.raises(ValueError, match=said):
        build(**options)


def test_the_engine_passes_its_options_on():
    """To every connector that it makes."""
    connector = build(limit="3", checksum="off", deadline="0.25").connector()
    connector.put(*SLOT, b"abc")
    with pytest.raises(ValueError, match="the limit is 3"):
        connector.put(*SLOT, b"abcd")
    assert connector._store.find(SLOT).checksum is None
    assert connector._peers._seconds == 0.25
    connector.close()
