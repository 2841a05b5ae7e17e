"""Frames of the tcp connector: whole ones arrive as they were sent, and nothing else is taken for one."""

import socket
import struct

import pytest
import xxhash

from harness.transfer.reference.errors import PayloadError, PeerClosed, PeerTimeout, ProtocolError
from harness.transfer.reference.tcp_channel import Channel, Deadline
from harness.transfer.reference.tcp_frames import KEY_LIMIT, TEXT_LIMIT, Frame, Op, Status, checksum_of, decode_slot, encode_slot, head_of

SLOT = ("0", "1", "k\u00e9y")
DATA = bytes(range(40))
KEY = encode_slot(SLOT)
GET = Frame(Op.GET, 7, Status.OK, SLOT, DATA, checksum_of(DATA))


def pair():
    """Two ends of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


def received(raw, limit=100, seconds=5.0):
    """What a channel makes of a stream that ends after these bytes."""
    ours, theirs = pair()
    with ours, theirs:
        theirs.sendall(raw)
        theirs.shutdown(socket.SHUT_WR)
        return Channel(ours, "peer:1").receive("a reply", limit, Deadline(seconds))


def sealed(magic=b"AKVT", version=1, op=2, status=0, flags=0, key=KEY, key_size=None, size=0, key_sum=None):
    """A frame without a payload, with a seal that fits whatever its fields say."""
    key_size, key_sum = len(key) if key_size is None else key_size, checksum_of(key) if key_sum is None else key_sum
    head = struct.pack("<4sBBBBIQQQQ", magic, version, op, status, flags, key_size, size, 7, key_sum, 0)
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)) + key


@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize(("data", "checksum"), [(DATA, checksum_of(DATA)), (DATA, None), (b"", checksum_of(b"")), (b"", None)])
def test_a_frame_arrives_as_it_was_sent(op, status, data, checksum):
    """Every field of it, with and without a payload, a checksum and a key."""
    for slot in (SLOT, ("", "", ""), None):
        sent = Frame(op, 2**64 - 1, status, slot, data, checksum)
        got = received(head_of(sent) + data)

        assert (got.op, got.boot, got.status, got.slot, got.checksum) == (op, 2**64 - 1, status, slot, checksum)
        assert bytes(got.payload.tolist()) == data


def test_a_channel_sends_what_a_channel_receives():
    """Over a real pair of sockets."""
    ours, theirs = pair()
    with ours, theirs:
        Channel(ours, "a").send(GET, Deadline(5))
        got = Channel(theirs, "b").receive("a reply", 100, Deadline(5))
    assert (got.slot, bytes(got.payload.tolist())) == (SLOT, DATA)


@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_is_noticed_wherever_it_is(bit):
    """In the header, the key and the payload; the frame with its bit restored is accepted."""
    raw = bytearray(head_of(GET) + DATA)
    for at in range(len(raw)):
        raw[at] ^= 1 << bit
        with pytest.raises((ProtocolError, PayloadError), match="peer:1"):
            received(raw)
        raw[at] ^= 1 << bit
    assert received(raw).slot == SLOT


def test_a_cut_frame_is_noticed_wherever_it_is_cut():
    """The error says how much came, and of what."""
    raw = head_of(GET) + DATA
    for at in range(len(raw)):
        with pytest.raises(PeerClosed, match=r"closed the connection after \d+ of \d+ bytes of the (header|key|payload) of a reply"):
            received(raw[:at])


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n" + bytes(60), "bytes that begin with b'HTTP/1.1', not with b'AKVT'"),
        (sealed(version=2), "version 1 of the protocol, got version 2"),
        (sealed(size=101), "announces 101 bytes of payload; the limit is 100"),
        (sealed(size=2**64 - 1), "announces 18446744073709551615 bytes of payload"),
        (sealed(key_size=KEY_LIMIT + 1), f"announces a key of {KEY_LIMIT + 1} bytes; the limit is {KEY_LIMIT}"),
        (sealed(key_sum=1), "a key that changed on its way"),
        (sealed(op=9), "9 is not a valid Op"),
        (sealed(status=9), "9 is not a valid Status"),
        (sealed(key=b"\1"), "does not hold three texts"),
        (sealed(key=b"\1\0a\1\0b"), "does not hold three texts"),
        (sealed(key=b"\1\0a\1\0b\2\0c"), "does not hold three texts"),
        (sealed(key=b"\1\0a\1\0b\1\0cd"), "1 bytes behind the key's three texts"),
        (sealed(key=b"\1\0a\1\0b\1\0\xff"), "'utf-8' codec can't decode"),
        (sealed(key=struct.pack("<H", TEXT_LIMIT + 1) + bytes(TEXT_LIMIT + 1) + b"\0\0\0\0"), "does not hold three texts"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_frame_is_told_in_these_words(raw, said):
    """Also where every checksum fits. Nothing is allocated for a length over its limit, or the test would run out of memory."""
    with pytest.raises(ProtocolError) as caught:
        received(raw)
    assert said in str(caught.value)
    assert str(caught.value).startswith("peer:1: expected a reply")


def test_the_crafted_frame_is_one_where_nothing_is_wrong_with_it():
    """The twin of the test above; a payload of just the limit is taken, too."""
    assert received(sealed()).slot == SLOT
    assert len(received(head_of(Frame(Op.GET, 7, payload=bytes(100))) + bytes(100)).payload) == 100


def test_a_payload_that_is_not_the_one_of_its_checksum():
    """Both checksums are told."""
    with pytest.raises(PayloadError, match="0x0000000000000001"):
        received(head_of(Frame(Op.GET, 7, slot=SLOT, payload=DATA, checksum=1)) + DATA)


def test_silence_ends_at_the_deadline():
    """The error says what was expected, and the option that says how long."""
    ours, theirs = pair()
    with (
        ours,
        theirs,
        pytest.raises(PeerTimeout, match=r"longer than 0.05 s \(option deadline\); expected the header of a reply \(0 of 52"),
    ):
        Channel(ours, "peer:1").receive("a reply", 100, Deadline(0.05))


def test_a_peer_that_takes_nothing_ends_at_the_deadline():
    """More than the socket buffers hold."""
    ours, theirs = pair()
    with ours, theirs, pytest.raises(PeerTimeout, match="expected to take 33554432 bytes after GET"):
        Channel(ours, "peer:1").send(Frame(Op.GET, 7, payload=bytes(1 << 25)), Deadline(0.05))


@pytest.mark.parametrize(
    "slot", [("0", "1", "k"), ("", "", ""), ("a/b", "\n", "\u9375"), ("x" * TEXT_LIMIT, "", "y" * TEXT_LIMIT)], ids=str
)
def test_slots_come_back(slot):
    """Whatever texts they are."""
    assert decode_slot(encode_slot(slot)) == slot


@pytest.mark.parametrize(
    ("slot", "said"),
    [
        (("0", "1", 5), "key = 5: give a text"),
        ((None, "1", "k"), "from_stage = None: give a text"),
        (("0", "\u00e9" * TEXT_LIMIT, "k"), f"to_stage has {2 * TEXT_LIMIT} bytes, more than {TEXT_LIMIT}"),
        (("0", "1", "\ud800"), "surrogates not allowed"),
    ],
    ids=str,
)
def test_what_is_no_slot(slot, said):
    """A ValueError that names the part."""
    with pytest.raises(ValueError, match=said):
        encode_slot(slot)
