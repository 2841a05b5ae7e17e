"""The wire format and the codec: bits arrive, and anything else is refused."""

import json
import struct

import pytest
import torch
import xxhash

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import KVLayout, KVPayload
from harness.transfer.reference.codec import PayloadCodec
from harness.transfer.reference.errors import PayloadError
from harness.transfer.reference.wire import Wire, WireTensor

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def payload(layers=2, tokens=10, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    tensors = [torch.randn(tokens, 4, 8, generator=generator).to(dtype) for _ in range(2 * layers)]
    return KVPayload(tuple(tensors[0::2]), tuple(tensors[1::2]))


def codec(layers=2, dtype=torch.float32, heads=4):
    return PayloadCodec(KVLayout(layers, 4, heads, 8, dtype))


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.fixture
def frame():
    return codec().encode("r", payload(), 10)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_survive(dtype):
    """Every dtype comes back with its bits, shape and metadata."""
    sent = payload(dtype=dtype)
    got, metadata = codec(dtype=dtype).decode("r", codec(dtype=dtype).encode("r", sent, 10), torch.clone)
    assert all(map(same_bits, (*got.keys, *got.values), (*sent.keys, *sent.values)))
    assert metadata["seq_len"] == 10


def test_signalling_bits_survive():
    """NaN payloads, infinities and negative zero are bits like others."""
    bits = torch.tensor([0x7FA00001, -0x80000000, 0x7F800000, -1], dtype=torch.int32).view(torch.float32)
    _, (got,) = Wire().unpack(Wire().pack({}, [WireTensor("x", 0, bits)]), torch.clone)
    assert same_bits(got.tensor, bits)


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, lambda b: torch.frombuffer(bytearray(b), dtype=torch.uint8)])
def test_any_buffer_is_read(frame, form):
    """What connectors carry: bytes in all forms, and uint8 tensors."""
    got, _ = codec().decode("r", form(bytes(frame)), torch.clone)
    assert same_bits(got.keys[1], payload().keys[1])


def test_twelve_layers_keep_their_order():
    """Names would put layer.10 before layer.2; the explicit order does not."""
    sent = payload(layers=12)
    got, _ = codec(layers=12).decode("r", codec(layers=12).encode("r", sent, 10), torch.clone)
    assert all(map(same_bits, got.keys, sent.keys))
    assert all(map(same_bits, got.values, sent.values))


def test_non_contiguous_rows_are_sent_as_they_read():
    """A strided tensor arrives with its values, not with its memory."""
    strided = torch.arange(32, dtype=torch.float32).reshape(4, 8).T
    _, (got,) = Wire().unpack(Wire().pack({}, [WireTensor("x", 0, strided)]), torch.clone)
    assert torch.equal(got.tensor, strided)


@pytest.mark.parametrize("land", [torch.clone, lambda body: body], ids=["copied", "in place"])
def test_tensors_lie_where_they_landed(frame, land):
    """They are views of what `land` returned: of the frame itself where it returns that, and of nothing of the frame where it copies."""
    kept = bytes(frame)
    first, _ = codec().decode("r", frame, land)
    first.keys[0].zero_()
    assert (bytes(frame) == kept) is (land is torch.clone)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 100, -1])
def test_truncation_is_refused(frame, length):
    """Cut anywhere: inside the prefix, the header, or the tensors."""
    with pytest.raises(PayloadError, match=r"shorter than its|sent as"):
        codec().decode("r", frame[:length], torch.clone)


def test_extra_bytes_are_refused(frame):
    """A payload is as long as it was sent."""
    with pytest.raises(PayloadError, match="sent as"):
        codec().decode("r", bytes(frame) + b"\0", torch.clone)


def test_every_flipped_bit_is_noticed():
    """One bit in any byte of a small frame, prefix and padding included."""
    frame = Wire().pack({"seq_len": 1}, [WireTensor("x", 0, torch.ones(3))])
    for position in range(len(frame)):
        changed = bytearray(frame)
        changed[position] ^= 1 << (position % 8)
        with pytest.raises(PayloadError):
            Wire().unpack(changed, torch.clone)


def test_another_magic_is_named(frame):
    """Bytes of something else are told apart from damaged bytes."""
    with pytest.raises(PayloadError, match="starts with b'GIF89a"):
        codec().decode("r", b"GIF89a\0\0" + bytes(frame[8:]), torch.clone)


def sealed(header, body=b""):
    """A frame with a right length and checksum around any header."""
    start = -(-(32 + len(header)) // 64) * 64
    tail = struct.pack("<IIQ", 1, len(header), start + len(body)) + header.ljust(start - 32, b"\0") + body
    return b"ASSAYKV2" + struct.pack("<Q", xxhash.xxh3_64_intdigest(tail)) + tail


@pytest.mark.parametrize(
    "tensor",
    [
        {"name": "x", "order": 0, "dtype": "float32", "shape": [4], "offset": 0},
        {"name": "x", "order": 0, "dtype": "float32", "shape": [-1], "offset": 4},
        {"name": "x", "order": 0, "dtype": "float32", "shape": [1], "offset": -4},
        {"name": "x", "order": 0, "dtype": "object", "shape": [1], "offset": 0},
        {"name": "x", "order": 0, "dtype": "float32", "shape": [1]},
    ],
    ids=["past the end", "negative size", "before the start", "unknown dtype", "no offset"],
)
def test_a_header_that_lies_is_refused(tensor):
    """A right checksum does not make a descriptor true."""
    with pytest.raises(PayloadError, match="does not describe its tensors"):
        Wire().unpack(sealed(json.dumps({"metadata": {}, "tensors": [tensor]}).encode(), b"\0" * 8), torch.clone)


def test_a_header_that_is_not_json_is_refused():
    """Nothing is executed or guessed."""
    with pytest.raises(PayloadError, match="not JSON"):
        Wire().unpack(sealed(b"\x80\x04not json"), torch.clone)


def test_a_huge_header_is_refused():
    """The header is bounded before it is parsed."""
    with pytest.raises(PayloadError, match="header of 1048577 bytes"):
        Wire().unpack(sealed(b" " * 1048577), torch.clone)


def test_integers_are_no_kv():
    """A dtype that the format does not know is refused when sent, by name."""
    with pytest.raises(ValueError, match=r"x: KV of torch.int32"):
        Wire().pack({}, [WireTensor("x", 0, torch.ones(1, dtype=torch.int32))])


def test_anothers_payload_is_refused(frame):
    """Bytes of one request under the key of another are not delivered."""
    with pytest.raises(PayloadError, match="request 'r' came for 's'"):
        codec().decode("s", frame, torch.clone)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (codec(layers=3), "4 tensors, not a key and a value for each of 3 layers"),
        (codec(dtype=torch.bfloat16), r"layer.0.key is torch.float32, this stage holds torch.bfloat16"),
        (codec(heads=2), r"layer.0.key has shape \[10, 4, 8\]"),
    ],
    ids=["layers", "dtype", "heads"],
)
def test_another_layout_is_refused_on_arrival(frame, other, said):
    """Same bytes, other stage: the text says which tensor and what was expected."""
    with pytest.raises(PayloadError, match=said):
        other.decode("r", frame, torch.clone)


def test_uneven_layers_are_refused():
    """All layers hold the same tokens."""
    short, long = payload(tokens=9), payload(tokens=10)
    mixed = KVPayload((short.keys[0], long.keys[1]), (short.values[0], long.values[1]))
    with pytest.raises(PayloadError, match=r"different numbers of tokens: \[9, 10\]"):
        codec().decode("r", codec().encode("r", mixed, 10), torch.clone)


@pytest.mark.parametrize("tensor", [torch.ones(4), torch.zeros(2, 2, dtype=torch.uint8), torch.zeros(8, dtype=torch.uint8)[::2]])
def test_only_flat_bytes_are_a_buffer(tensor):
    """A tensor that is not contiguous one-dimensional uint8 is refused rather than reinterpreted."""
    with pytest.raises(ValueError, match="contiguous, one-dimensional and uint8"):
        byte_view(tensor)
