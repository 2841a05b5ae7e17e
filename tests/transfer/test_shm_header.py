"""The header of a segment: every damaged byte is noticed."""

import os

import pytest

from harness.transfer.reference import shm_header
from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.shm_header import PAGE, SLOT_LIMIT, Header, Readers, read_header, read_readers, slot_text, write_readers

SLOT = slot_text("0", "1", "schlüssel")
HEADER = Header(SLOT, 100, 0x1234, 3, 7, bytes(range(16)), 5)
SEGMENT = HEADER.pack(2).ljust(PAGE, b"\0") + bytes(100)
READERS = range(shm_header._READERS_AT, shm_header._SLOT_AT)


@pytest.fixture
def segment(tmp_path):
    """A function that opens a segment of these bytes."""
    opened = []

    def make(content):
        path = tmp_path / str(len(opened))
        path.write_bytes(content)
        opened.append(os.open(path, os.O_RDWR))
        return opened[-1]

    yield make
    for fd in opened:
        os.close(fd)


def damaged(at):
    """The segment with one bit of one byte changed."""
    return SEGMENT[:at] + bytes([SEGMENT[at] ^ 4]) + SEGMENT[at + 1 :]


def test_what_was_packed_is_read(segment):
    """All of it, and the readers."""
    fd = segment(SEGMENT)
    assert read_header(fd) == HEADER
    assert read_readers(fd) == Readers(2)


def test_no_checksum_is_not_a_checksum_of_zero(segment):
    """Both are read as what they were."""
    for checksum in (None, 0):
        header = Header(SLOT, 100, checksum, 3, 7, bytes(16), 5)
        assert read_header(segment(header.pack(1).ljust(PAGE + 100, b"\0"))).checksum == checksum


@pytest.mark.parametrize("at", [n for n in range(shm_header._SLOT_AT + len(SLOT)) if n not in READERS])
def test_every_byte_is_checked(segment, at):
    """A changed bit anywhere, but in the count of readers, is an error."""
    with pytest.raises(PayloadError):
        read_header(segment(damaged(at)))


@pytest.mark.parametrize("at", READERS)
def test_the_count_of_readers_is_checked(segment, at):
    """It has a check of its own, and leaves the payload readable."""
    fd = segment(damaged(at))
    assert read_header(fd) == HEADER
    with pytest.raises(PayloadError, match="readers"):
        read_readers(fd)


def test_the_count_of_readers_can_change(segment):
    """Nothing else does."""
    fd = segment(SEGMENT)
    left = Readers(3).without("one").without("one").without("")
    write_readers(fd, left)
    assert read_readers(fd) == left
    assert (left.left, len(left.done)) == (1, 1)
    assert read_header(fd) == HEADER


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "segment of 0 bytes is shorter"),
        (SEGMENT[:20], "segment of 20 bytes is shorter"),
        (b"NOTOURS!" + SEGMENT[8:], "starts with b'NOTOURS!'"),
        (SEGMENT[:8] + b"\x02" + SEGMENT[9:], "version 2; this is version 1"),
        (SEGMENT[: PAGE + 50], "holds 4146 bytes"),
        (Header(b"x" * (SLOT_LIMIT + 1), 1, None, 0, 0, bytes(16), 0).pack(1), "at most 65536 are read"),
        (Header(SLOT, 1 << 60, None, 0, 0, bytes(16), 0).pack(1), "payload of 1152921504606846976 bytes"),
    ],
)
def test_what_is_no_header(segment, content, match):
    """Short, foreign, newer, cut, and with lengths beyond the file: the error says which."""
    with pytest.raises(PayloadError, match=match):
        read_header(segment(content))


def test_slots_are_told_apart():
    """Wherever a stage ends and the next begins; a text too long is refused."""
    assert len({slot_text("0", "11", "k"), slot_text("01", "1", "k"), slot_text("0", "1", "1k"), slot_text('0", "1', "1", "k")}) == 4
    with pytest.raises(ValueError, match="a header holds"):
        slot_text("0", "1", "k" * SLOT_LIMIT)
