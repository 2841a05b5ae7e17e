"""The connector in shared memory, in one process."""

import gc
import threading
from pathlib import Path

import pytest
import torch

from harness.core.clock import VirtualClock
from harness.transfer.reference import shm_slots, shm_views
from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.lab import InjectedFailure, ReferenceLab
from harness.transfer.reference.shm import LARGEST_LIMIT, ShmConnector

K = ("0", "1", "k")


@pytest.fixture
def make(tmp_path):
    made = []

    def connector(address=None, **options):
        made.append(ShmConnector(address, root=tmp_path, **options))
        return made[-1]

    yield connector
    for each in made:
        each.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def connector(make):
    return make()


def segments(connector):
    """The inodes of a connector's segment files."""
    return {path.stat().st_ino for path in connector._transport.home.iterdir()}


def _target(fd):
    """What an entry of /proc/self/fd leads to; "" if it is closed by now."""
    try:
        return str(fd.readlink())
    except FileNotFoundError:
        return ""


def test_what_was_put_is_got(connector):
    """Bytes, read-only, and their number."""
    assert connector.put(*K, b"abc") == (True, 3, None)
    data, size = connector.get(*K)
    assert (bytes(data), size, data.readonly) == (b"abc", 3, True)


def test_a_reader_cannot_write(connector):
    """It would write into what the other readers see."""
    connector.put(*K, b"abc")
    data, _ = connector.get(*K)
    with pytest.raises(TypeError, match="read-only"):
        data[0] = 1


def test_a_freed_segment_is_used_again(connector):
    """The next payload of that size goes into the same file; a payload that is held keeps its own."""
    connector.put(*K, b"one")
    first = segments(connector)
    connector.done(*K)
    connector.put(*K, b"two")
    assert segments(connector) == first
    connector.put("0", "1", "other", b"three")
    assert len(segments(connector)) == 2
    assert bytes(connector.get(*K)[0]) == b"two"


def test_a_segment_in_a_readers_hand_is_not_used_again(connector):
    """Before the last view is gone; then it is."""
    connector.put(*K, b"one")
    data, _ = connector.get(*K)
    connector.done(*K)
    part = data[1:]
    del data
    gc.collect()
    connector.put(*K, b"two")
    assert bytes(part) == b"ne"
    assert len(segments(connector)) == 2
    connector.done(*K)
    del part
    gc.collect()
    connector.put("0", "1", "a", b"a")
    connector.put("0", "1", "b", b"b")
    assert len(segments(connector)) == 2


@pytest.mark.parametrize("view", [lambda data: torch.frombuffer(data, dtype=torch.uint8)[1:], lambda data: memoryview(data)[1:]])
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_what_is_made_from_a_view_keeps_the_segment(connector, view):
    """Tensors and memoryviews hold the lock as long as they live, when the view itself is gone."""
    connector.put(*K, b"one")
    part = view(connector.get(*K)[0])
    connector.done(*K)
    gc.collect()
    for _ in range(5):
        connector.put(*K, b"two")
        connector.done(*K)
    assert bytes(part.tolist()) == b"ne"


def test_a_second_get_maps_nothing(connector, monkeypatch):
    """The mapping of a segment is kept, also for the payload that is put into it next; a new segment is mapped."""
    made = []
    mmap = shm_views.mmap.mmap
    connector.put(*K, b"one")
    monkeypatch.setattr(shm_views.mmap, "mmap", lambda *a, **k: made.append(a) or mmap(*a, **k))
    assert bytes(connector.get(*K)[0]) == b"one"
    connector.get(*K)
    connector.done(*K)
    connector.put(*K, b"two")
    assert bytes(connector.get(*K)[0]) == b"two"
    assert len(made) == 1


@pytest.mark.parametrize("meanwhile", ["discarded", "discarded and written anew", "replaced"])
def test_a_get_that_is_overtaken(connector, monkeypatch, meanwhile):
    """Between the opening of a segment and its lock its payload goes: the get gives what is under the key then."""
    connector.put(*K, b"old")
    lock = shm_slots.try_lock

    def overtaken(fd, how):
        monkeypatch.setattr(shm_slots, "try_lock", lock)
        if meanwhile == "replaced":
            connector.put(*K, b"new")
        else:
            connector.discard(*K)
        if meanwhile == "discarded and written anew":
            connector.put("0", "1", "other", b"other")
        return lock(fd, how)

    monkeypatch.setattr(shm_slots, "try_lock", overtaken)
    found = connector.get(*K)
    assert (found and bytes(found[0])) == (b"new" if meanwhile == "replaced" else None)


def test_a_removed_segment_is_not_kept_mapped(make):
    """Of a sender that closed: its memory goes with the next mapping that is made."""
    receiver = make()
    for _ in range(3):
        sender = make(receiver.address)
        sender.put(*K, b"abc")
        receiver.get(*K)
        sender.close()
    gone = [link for link in map(_target, Path("/proc/self/fd").iterdir()) if link.startswith(receiver.address) and "deleted" in link]
    assert len(gone) == 2  # the last one's file, and its mapping's


def test_damage_is_noticed(make):
    """One bit behind the checksum; with checksums off the bytes are given as they are."""
    lab = ReferenceLab(VirtualClock(), ("store", "damage"))
    for checksum in (True, False):
        connector = make(checksum=checksum, lab=lab)
        lab.fail_next("damage")
        connector.put(*K, b"abcd")
        if checksum:
            with pytest.raises(PayloadError, match="changed in shared memory"):
                connector.get(*K)
        else:
            assert bytes(connector.get(*K)[0]) == b"abbd"
        connector.put(*K, b"abcd")
        assert bytes(connector.get(*K)[0]) == b"abcd"


def test_a_put_that_fails_leaves_a_free_segment(make):
    """Its segment is written again by the next put."""
    lab = ReferenceLab(VirtualClock(), ("store", "damage"))
    connector = make(lab=lab)
    lab.fail_next("store")
    with pytest.raises(InjectedFailure):
        connector.put(*K, b"abcd")
    assert connector.get(*K) is None
    connector.put(*K, b"abcd")
    assert len(segments(connector)) == 1


def test_two_keys_of_one_hash_are_told_apart(make, monkeypatch):
    """The second is refused, and nothing of the first is given, counted down or freed in its name."""
    monkeypatch.setattr(shm_slots, "link_name", lambda _: "same")
    connector = make()
    connector.put(*K, b"abc")
    other = ("0", "1", "other")
    with pytest.raises(ConnectionError, match='"k"], which is held; use another key'):
        connector.put(*other, b"def")
    connector.done(*other)
    connector.discard(*other)
    assert connector.get(*other) is None
    assert bytes(connector.get(*K)[0]) == b"abc"
    connector.discard(*K)
    connector.put(*other, b"def")
    assert bytes(connector.get(*other)[0]) == b"def"


def test_a_payload_of_another_peer_is_replaced(make):
    """Its owner holds it no longer, and may use its segment again."""
    one = make()
    two = make(one.address)
    one.put(*K, b"one")
    two.put(*K, b"two")
    assert (one.usage()["segments"], two.usage()["segments"]) == (0, 1)
    assert bytes(one.get(*K)[0]) == b"two"
    one.put("0", "1", "other", b"three")
    assert len(segments(one)) == 1


def test_readers_are_counted_across_peers(make):
    """Whoever is done, the last one frees."""
    one = make()
    two = make(one.address)
    one.put(*K, b"one", readers=2)
    two.done(*K)
    assert one.usage() == {"segments": 1, "bytes": 3}
    one.done(*K)
    assert one.usage() == {"segments": 0, "bytes": 0}


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, (64 << 10) - 4096, 64 << 10, (1 << 20) + 1])
def test_any_size(connector, size):
    """Around pages and segment sizes."""
    data = bytes(range(256)) * (size // 256 + 1)
    connector.put(*K, data[:size])
    got, counted = connector.get(*K)
    assert (bytes(got), counted) == (data[:size], size)


def test_threads_leave_no_segment_behind(connector):
    """Eight threads that put under one key: one payload is held, and no more segments than threads and it."""
    threads = [threading.Thread(target=lambda n=n: [connector.put(*K, bytes([n]) * 5000) for _ in range(30)]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connector.usage() == {"segments": 1, "bytes": 5000}
    assert len(segments(connector)) <= 9


def test_a_closed_connector(make):
    """Finds nothing, holds nothing, refuses a put, and may be closed again; a peer goes on."""
    one = make()
    two = make(one.address)
    one.put(*K, b"abc")
    one.close()
    one.close()
    assert (one.get(*K), one.holds(*K), one.usage()) == (None, False, {"segments": 0, "bytes": 0})
    one.done(*K)
    one.discard(*K)
    with pytest.raises(ConnectionError, match="is closed"):
        one.put(*K, b"abc")
    assert two.get(*K) is None
    two.put(*K, b"abc")
    assert bytes(two.get(*K)[0]) == b"abc"


def test_joining_what_is_not_there(make, tmp_path):
    """An address that is none, one that is gone, and one of another user."""
    with pytest.raises(ValueError, match="a transport is called"):
        make("/tmp")
    with pytest.raises(ConnectionError, match="is gone: its last peer closed"):
        make(str(tmp_path / "assay-shm-0"))


def test_joining_another_users_transport(make, monkeypatch):
    """It is refused, whatever its rights allow."""
    one = make()
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    with pytest.raises(ConnectionError, match="belongs to user"):
        make(one.address)


def test_a_damaged_header_can_be_discarded_and_replaced(connector):
    """A get and a done say that it is damaged; neither leaves the key blocked."""
    for repair in (lambda: connector.discard(*K), lambda: connector.put(*K, b"new")):
        connector.put(*K, b"abc")
        (link,) = connector._transport.held.iterdir()
        with link.open("r+b") as segment:
            segment.write(b"damaged!")
        for call in (connector.get, connector.done):
            with pytest.raises(PayloadError):
                call(*K)
        repair()
        connector.discard(*K)
        assert connector.usage() == {"segments": 0, "bytes": 0}


def test_bad_input(make):
    """Each is a ValueError that names the value, and leaves nothing."""
    connector = make(limit=10)
    for data, readers, match in ((b"a" * 11, 1, "limit = 10"), (b"a", 0, "readers = 0"), (b"a", 1 << 32, "readers = 4294967296")):
        with pytest.raises(ValueError, match=match):
            connector.put(*K, data, readers)
    with pytest.raises(ValueError, match="a header holds 65536"):
        connector.put("0", "1", "k" * (64 << 10), b"a")
    with pytest.raises(ValueError, match="limit = 0"):
        make(limit=0)
    with pytest.raises(ValueError, match=f"give 1 to {LARGEST_LIMIT}"):
        make(limit=LARGEST_LIMIT + 1)
    assert segments(connector) == set()
