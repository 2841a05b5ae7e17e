"""The connector in shared memory between processes, some of them killed."""

import os
import select
import signal
import traceback
from contextlib import contextmanager

import pytest

from harness.transfer.reference import shm_transport
from harness.transfer.reference.lab import Pause
from harness.transfer.reference.shm import ShmConnector
from harness.transfer.reference.shm_transport import sweep_root

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

K = ("0", "1", "k")
LIMIT = 20.0
"""Seconds of wall time for a child to say something."""


class Child:
    """A forked process, which need not import torch again, runs `function(tell, mouth)`; what it tells, or writes to `mouth`, is heard."""

    def __init__(self, function):
        self._ear, mouth = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                function(lambda: os.write(mouth, b"."), mouth)
                status = 0
            except BaseException:  # noqa: BLE001 (nothing of the child may run on into pytest)
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(mouth)
        self.status = None

    def hear(self):
        """The next byte that it tells; b"" once it ended."""
        ready, _, _ = select.select([self._ear], [], [], LIMIT)
        if not ready:
            raise TimeoutError(f"the child said nothing for {LIMIT:g} s")
        return os.read(self._ear, 1)

    def kill(self):
        """SIGKILL: no handler and no clean-up runs."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self):
        """Its exit status, negative for a signal."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ear)
        return self.status


@contextmanager
def child(function):
    """A child that does not outlive the block."""
    born = Child(function)
    try:
        yield born
    finally:
        if born.status is None:
            born.kill()


def stand_still():
    """Until killed."""
    while True:
        signal.pause()


@pytest.fixture
def connector(tmp_path):
    made = ShmConnector(root=tmp_path)
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


def segments(connector):
    """How many files a connector's segments take."""
    return len(list(connector._transport.home.iterdir()))


def test_a_payload_goes_to_another_process(connector, tmp_path):
    """Which is done with it: the sender holds it no longer and uses its segment again."""

    def receive(tell, _):
        other = ShmConnector(connector.address, root=tmp_path)
        data, _ = other.get(*K)
        assert bytes(data) == b"abc"
        other.done(*K)
        other.close()

    connector.put(*K, b"abc")
    with child(receive) as receiver:
        assert receiver.wait() == 0
    assert connector.usage() == {"segments": 0, "bytes": 0}
    connector.put(*K, b"def")
    assert segments(connector) == 1


def test_a_killed_sender(connector, tmp_path):
    """What a reader holds of it stays readable; the rest is swept when a peer starts, and its name goes to the next one."""

    def send(tell, _):
        other = ShmConnector(connector.address, root=tmp_path)
        other.put(*K, b"abc")
        tell()
        stand_still()

    with child(send) as sender:
        assert sender.hear() == b"."
        data, _ = connector.get(*K)
        assert sender.kill() == -signal.SIGKILL
    assert bytes(data) == b"abc"
    second = ShmConnector(connector.address, root=tmp_path)
    assert second._transport.home.name == "peer-1"
    assert connector.get(*K) is None
    assert bytes(data) == b"abc"
    second.put(*K, b"def")
    assert bytes(connector.get(*K)[0]) == b"def"
    second.close()


def test_an_explicit_sweep(connector, tmp_path):
    """Removes what a killed peer left, and whole transports of killed ones, and nothing of the living."""

    def send(tell, _):
        ShmConnector(connector.address, root=tmp_path).put(*K, b"abc")
        alone = ShmConnector(root=tmp_path)
        alone.put(*K, b"abc")
        tell()
        stand_still()

    connector.put("0", "1", "own", b"abc")
    with child(send) as sender:
        assert sender.hear() == b"."
        connector.sweep()
        assert len(list(tmp_path.iterdir())) == 2
        assert connector.get(*K) is not None
        sender.kill()
    connector.sweep()
    assert [str(path) for path in tmp_path.iterdir()] == [connector.address]
    assert connector.get(*K) is None
    assert bytes(connector.get("0", "1", "own")[0]) == b"abc"


def test_a_sender_killed_inside_a_put(connector, tmp_path):
    """Half a copy is never seen: the older payload stays, and the next put replaces it."""

    def send(_, mouth):
        other = ShmConnector(connector.address, root=tmp_path, lab=Pause("store", mouth))
        other.put(*K, b"new" * 1000)

    connector.put(*K, b"old")
    with child(send) as sender:
        assert sender.hear() == b"."
        assert bytes(connector.get(*K)[0]) == b"old"
        sender.kill()
    assert bytes(connector.get(*K)[0]) == b"old"
    connector.put(*K, b"next")
    assert bytes(connector.get(*K)[0]) == b"next"
    connector.sweep()
    assert not (connector._transport.path / "peer-1").exists()


def test_a_peer_that_stops_inside_the_guard(connector, tmp_path, monkeypatch):
    """A put raises when its time is over, and says what may be wrong; when that peer dies the next put works."""

    def stop(tell, _):
        with ShmConnector(connector.address, root=tmp_path)._transport.guard():
            tell()
            stand_still()

    with child(stop) as stopped:
        assert stopped.hear() == b"."
        monkeypatch.setattr(shm_transport, "GUARD_LIMIT", 0.02)
        with pytest.raises(TimeoutError, match=r"another process held the guard for 0\.02 s; is a peer stopped"):
            connector.put(*K, b"abc")
        stopped.kill()
    connector.put(*K, b"abc")
    assert bytes(connector.get(*K)[0]) == b"abc"


def test_a_killed_receiver(connector, tmp_path):
    """Its lock ends with it: the segment that it read is used again."""

    def receive(tell, _):
        other = ShmConnector(connector.address, root=tmp_path)
        kept = other.get(*K)
        tell()
        stand_still()
        del kept

    connector.put(*K, b"abc")
    with child(receive) as receiver:
        assert receiver.hear() == b"."
        connector.discard(*K)
        connector.put(*K, b"def")
        assert segments(connector) == 2
        receiver.kill()
    connector.put("0", "1", "other", b"ghi")
    assert segments(connector) == 2


def test_a_transport_of_the_dead_goes_at_the_next_start(tmp_path):
    """Of any connector. As long as its peer lives it stays."""

    def live(tell, _):
        ShmConnector(root=tmp_path).put(*K, b"abc")
        tell()
        stand_still()

    with child(live) as alone:
        assert alone.hear() == b"."
        (left,) = tmp_path.iterdir()
        ShmConnector(root=tmp_path).close()
        assert left.exists()
        alone.kill()
    ShmConnector(root=tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_the_last_peer_removes_the_transport(connector, tmp_path):
    """Not the one that made it."""

    def outlive(tell, mouth):
        other = ShmConnector(connector.address, root=tmp_path)
        tell()
        signal.sigwait({signal.SIGTERM})
        other.put(*K, b"abc")
        assert bytes(other.get(*K)[0]) == b"abc"
        other.close()

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with child(outlive) as other:
            assert other.hear() == b"."
            connector.close()
            assert len(list(tmp_path.iterdir())) == 1
            os.kill(other.pid, signal.SIGTERM)
            assert other.wait() == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_forked_child_has_no_share(connector):
    """Its calls raise and say how to join; its end frees nothing; what was being read stays readable in it."""

    def use(tell, _):
        for call in (lambda: connector.put(*K, b"x"), lambda: connector.get(*K), lambda: connector.discard(*K), connector.close):
            with pytest.raises(RuntimeError, match=f"join {connector.address} with a new one"):
                call()
        assert bytes(data) == b"abc"

    connector.put(*K, b"abc")
    data, _ = connector.get(*K)
    with child(use) as forked:
        assert forked.wait() == 0
    assert bytes(connector.get(*K)[0]) == b"abc"
    connector.put(*K, b"def")
    assert bytes(connector.get(*K)[0]) == b"def"


def test_a_forked_child_does_not_keep_its_parent_alive(tmp_path):
    """When the parent is killed its transport is swept, though the child lives on."""

    def parent(tell, mouth):
        made = ShmConnector(root=tmp_path)
        made.put(*K, b"abc")
        if os.fork() == 0:
            os.write(mouth, str(os.getpid()).encode() + b"\n")
            stand_still()
        stand_still()

    with child(parent) as killed:
        grandchild = int(b"".join(iter(killed.hear, b"\n")))
        try:
            killed.kill()
            sweep_root(tmp_path)
            assert list(tmp_path.iterdir()) == []
        finally:
            os.kill(grandchild, signal.SIGKILL)
