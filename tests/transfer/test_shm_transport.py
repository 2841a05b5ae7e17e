"""Directories of transports that are made and removed at the same time."""

import pytest

from harness.transfer.reference import shm_transport
from harness.transfer.reference.shm_transport import Transport


@pytest.mark.parametrize("moment", ["before the opening", "before the lock"])
def test_a_directory_swept_while_it_is_made(tmp_path, monkeypatch, moment):
    """Nobody lives in it yet, so another process may remove it: another one is made."""
    opening = shm_transport._open_directory

    def swept(path):
        monkeypatch.setattr(shm_transport, "_open_directory", opening)
        fd = opening(path) if moment == "before the lock" else None
        path.rmdir()
        return fd

    monkeypatch.setattr(shm_transport, "sweep_root", lambda _: None)
    monkeypatch.setattr(shm_transport, "_open_directory", swept)
    transport = Transport(None, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [transport.path.name]
    transport.leave()
    assert list(tmp_path.iterdir()) == []


def test_a_transport_that_cannot_be_entered_leaves_nothing(tmp_path, monkeypatch):
    """An error on the way in: no lock and no directory stays."""
    monkeypatch.setattr(Transport, "_register", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Transport(None, tmp_path)
    assert list(tmp_path.iterdir()) == []
