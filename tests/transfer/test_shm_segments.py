"""The pool of segments of one sender."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.transfer.reference import shm_segments
from harness.transfer.reference.shm_segments import KEPT_SEGMENTS, SMALLEST, SegmentPool, capacity_for


@pytest.fixture
def pool(tmp_path):
    (tmp_path / "peer").mkdir()
    made = SegmentPool(tmp_path / "peer")
    yield made
    made.close()
    assert list((tmp_path / "peer").iterdir()) == []


def test_a_segment_given_back_is_taken_again(pool):
    """The same one; while it is taken another is made."""
    first = pool.take(100)
    second = pool.take(100)
    assert first is not second
    pool.give_back(first)
    assert pool.take(100) is first
    for segment in (first, second):
        pool.give_back(segment)


def test_a_published_segment_is_not_taken(pool, tmp_path):
    """As long as a second link leads to it."""
    first = pool.take(100)
    (tmp_path / "link").hardlink_to(first.path)
    pool.give_back(first)
    assert pool.published() == [first]
    second = pool.take(100)
    assert second is not first
    (tmp_path / "link").unlink()
    assert pool.published() == []
    assert pool.take(100) is first
    for segment in (first, second):
        pool.give_back(segment)


def test_a_segment_that_is_read_is_not_taken(pool):
    """As long as somebody holds a shared lock on it."""
    first = pool.take(100)
    pool.give_back(first)
    reader = os.open(first.path, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    second = pool.take(100)
    pool.give_back(second)
    assert second is not first
    os.close(reader)
    taken = [pool.take(100), pool.take(100)]
    assert first in taken
    for segment in taken:
        pool.give_back(segment)


def test_no_more_are_kept_than_may_be(pool):
    """Of many that were used at a time only so many stay, when the next is taken."""
    for segment in [pool.take(100) for _ in range(KEPT_SEGMENTS + 5)]:
        pool.give_back(segment)
    pool.give_back(pool.take(100))
    assert len(list(pool._home.iterdir())) <= KEPT_SEGMENTS + 1


def test_no_more_bytes_are_kept_than_may_be(pool, monkeypatch):
    """The one used longest ago goes first."""
    monkeypatch.setattr(shm_segments, "KEPT_BYTES", 3 * SMALLEST)
    small = [pool.take(SMALLEST) for _ in range(3)]
    for segment in small:
        pool.give_back(segment)
    pool.give_back(pool.take(2 * SMALLEST))
    assert [path.name for path in pool._home.iterdir() if path.name == "0"] == ["0"]
    pool.give_back(pool.take(3 * SMALLEST))
    assert not small[0].path.exists()


def test_the_one_used_last_is_kept(pool, monkeypatch):
    """Whichever was made first."""
    monkeypatch.setattr(shm_segments, "KEPT_SEGMENTS", 1)
    older, newer = pool.take(SMALLEST), pool.take(2 * SMALLEST)
    for segment in (older, newer):
        pool.give_back(segment)
    pool.give_back(pool.take(SMALLEST))
    pool.give_back(pool.take(3 * SMALLEST))
    assert older.path.exists()
    assert not newer.path.exists()


def test_shared_memory_that_is_full():
    """Memory is reserved before a byte is copied: what does not fit is an error, not a SIGBUS in the copy."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        (Path(home) / "peer").mkdir()
        pool = SegmentPool(Path(home) / "peer")
        space = os.statvfs(home)
        with pytest.raises(ConnectionError, match=r"No space left on device; enlarge .*, or free some of 0 payloads"):
            pool.take(space.f_blocks * space.f_frsize + (1 << 20))
        pool.close()


def test_no_room(pool):
    """A file system that has no such memory: the error names it and the bytes, the free segments were given up, and the pool works on."""
    pool.give_back(pool.take(100))
    with pytest.raises(ConnectionError, match=r"no segment of 1125899906842624 bytes in .*; enlarge .*, or free some of 0 payloads"):
        pool.take(1 << 50)
    assert list(pool._home.iterdir()) == []
    pool.give_back(pool.take(100))


def test_a_closed_pool(pool):
    """Gives nothing, and a segment that was taken goes when its put ends."""
    segment = pool.take(100)
    pool.close()
    assert segment.path.exists()
    pool.give_back(segment)
    assert not segment.path.exists()
    with pytest.raises(ConnectionError, match="is closed"):
        pool.take(100)


@given(st.integers(0, 1 << 42))
def test_capacities(size):
    """A capacity holds the size, is its own capacity, and is at most a quarter too large."""
    capacity = capacity_for(size)
    assert capacity >= size
    assert capacity_for(capacity) == capacity
    assert capacity <= max(SMALLEST, size * 5 // 4 + SMALLEST)
