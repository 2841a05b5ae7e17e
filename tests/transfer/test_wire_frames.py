"""What a receiver takes for a frame: every form of buffer, checked and unchecked, and nothing that was changed."""

import json
import struct

import pytest
import torch
import xxhash

from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.wire import Wire, WireTensor

FIELDS = {"magic": (0, 8), "checksum": (8, 16), "flags": (16, 20), "header length": (20, 24), "total length": (24, 32)}
FORMS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": lambda frame: memoryview(bytearray(frame)),
    "read-only memoryview": memoryview,
    "memoryview of words": lambda frame: memoryview(bytearray(frame)).cast("Q"),
    "tensor": lambda frame: torch.frombuffer(bytearray(frame), dtype=torch.uint8),
}
SENT = torch.arange(5, dtype=torch.float32)


class Landing:
    """A `land` that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, body):
        self.calls += 1
        return body.clone()


@pytest.fixture
def land():
    return Landing()


def packed(checked=True):
    return bytes(Wire(checked).pack({"seq_len": 5}, [WireTensor("x", 0, SENT)]).tolist())


def sealed(tensors, body=b"\0" * 64, metadata=None):
    """A frame with a right length and checksum around any header."""
    header = json.dumps({"metadata": metadata or {}, "tensors": tensors}).encode()
    start = -(-(32 + len(header)) // 64) * 64
    tail = struct.pack("<IIQ", 1, len(header), start + len(body)) + header.ljust(start - 32, b"\0") + body
    return b"ASSAYKV2" + struct.pack("<Q", xxhash.xxh3_64_intdigest(tail)) + tail


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_frame_is_read_from_any_buffer(form, checked, land):
    """Once landed, with its metadata; the buffer itself stays as it was."""
    data = form(packed(checked))
    metadata, (got,) = Wire(checked).unpack(data, land)
    assert (metadata, got.name, got.tensor.tolist()) == ({"seq_len": 5}, "x", SENT.tolist())
    assert land.calls == 1
    got.tensor.zero_()
    assert bytes(data.tolist() if isinstance(data, torch.Tensor) else data) == packed(checked)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_changed_frame_is_refused_from_any_buffer(form, land):
    """The twin of the above."""
    with pytest.raises(PayloadError, match="bytes changed on the way"):
        Wire().unpack(form(packed()[:-1] + b"\1"), land)
    assert land.calls == 0


@pytest.mark.parametrize("field", FIELDS)
def test_every_bit_of_the_prefix_counts(field, land):
    """Flipped, it is refused before anything lands: also a flag that means nothing yet."""
    first, end = FIELDS[field]
    for bit in range(8 * first, 8 * end):
        changed = bytearray(packed())
        changed[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(PayloadError):
            Wire().unpack(changed, land)
    assert land.calls == 0


@pytest.mark.parametrize("length", [0, 1, 31, 32, 63, 64, 127])
@pytest.mark.parametrize("checked", [True, False])
def test_a_cut_frame_is_refused(length, checked, land):
    """Its length is known without a checksum."""
    with pytest.raises(PayloadError, match=r"shorter than its|sent as"):
        Wire(checked).unpack(packed(checked)[:length], land)
    assert land.calls == 0


def test_a_frame_without_a_checksum_is_refused_where_one_is_asked_for(land):
    """The text names the option; that a flag says so is no way around it."""
    with pytest.raises(PayloadError, match="carries no checksum, and this stage asks for one; checksum=off on both"):
        Wire().unpack(packed(checked=False), land)
    assert land.calls == 0


def test_a_stage_that_asks_for_no_checksum_reads_both(land):
    """And does not look at one that is there: what it costs is what was turned off."""
    for data in (packed(), packed(checked=False), packed()[:8] + b"\0" * 8 + packed()[16:]):
        assert Wire(checked=False).unpack(data, land)[1][0].tensor.tolist() == SENT.tolist()


def test_an_unchecked_frame_is_the_checked_one_but_for_its_sum_and_flag():
    """The same bytes elsewhere, zeros where the checksum would be."""
    checked, unchecked = packed(), packed(checked=False)
    assert unchecked[8:20] == b"\0" * 12
    assert checked[16:20] == b"\1\0\0\0"
    assert (checked[:8], checked[20:]) == (unchecked[:8], unchecked[20:])


TRUE = {"name": "x", "order": 0, "dtype": "float32", "shape": [5], "offset": 0}
LIES = {
    "past the end": {"shape": [17]},
    "before the start": {"offset": -64},
    "not aligned": {"offset": 2},
    "a size below 0": {"shape": [-1]},
    "two sizes below 0": {"shape": [-1, -5]},
    "a size that is no integer": {"shape": [1.5]},
    "an offset that is no integer": {"offset": 0.0},
    "an order that is no integer": {"order": "0"},
    "too large to view": {"shape": [0, 1 << 62, 1 << 62]},
    "sizes that are no list": {"shape": None},
    "an unknown dtype": {"dtype": "int64"},
    "a dtype that is no text": {"dtype": ["float32"]},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_tensor_that_cannot_be_is_refused(lie, land):
    """A right checksum does not make a descriptor true."""
    with pytest.raises(PayloadError, match="does not describe its tensors"):
        Wire().unpack(sealed([{**TRUE, **lie}]), land)


def test_the_frame_around_the_lies_is_right(land):
    """The twin: the same header without one is read."""
    assert Wire().unpack(sealed([TRUE]), land)[1][0].tensor.tolist() == [0.0] * 5


@pytest.mark.parametrize("header", [b"[" * 100_000, b"\xff", b"", b"{}", b"[]", b"null", b'{"tensors": [], "metadata": 3}'])
def test_a_header_of_another_kind_is_refused(header, land):
    """However deep, and though it is JSON."""
    start = -(-(32 + len(header)) // 64) * 64
    tail = struct.pack("<IIQ", 1, len(header), start) + header.ljust(start - 32, b"\0")
    with pytest.raises(PayloadError, match=r"is not JSON|does not describe its tensors"):
        Wire().unpack(b"ASSAYKV2" + struct.pack("<Q", xxhash.xxh3_64_intdigest(tail)) + tail, land)
