"""The checksum of a frame: what changes is noticed, on a card too (its sum runs here on the CPU)."""

import pytest
import torch
import xxhash

from harness.transfer.reference import checksum as module
from harness.transfer.reference.checksum import checksum, device_sum

WORDS = 8
MASK = (1 << 64) - 1


@pytest.fixture(params=["zeros", "any"])
def data(request):
    """uint8[64]: all zero, where a sum is weakest, and random."""
    if request.param == "zeros":
        return torch.zeros(8 * WORDS, dtype=torch.uint8)
    return torch.randint(0, 256, (8 * WORDS,), dtype=torch.uint8, generator=torch.Generator().manual_seed(8))


def flipped(data, *bits):
    changed = data.clone()
    for bit in bits:
        changed[bit // 8] ^= 1 << (bit % 8)
    return changed


def splitmix_sum(data):
    """The oracle, word by word in Python's unbounded integers."""
    total = 0
    for place in range(len(data) // 8):
        word = int.from_bytes(bytes(data[8 * place : 8 * place + 8].tolist()), "little")
        word = (word + (place + 1) * 0x9E3779B97F4A7C15) & MASK
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        total += word ^ (word >> 31)
    return total & MASK


def test_host_bytes_are_hashed_by_xxh3(data):
    """64 bits of them, as xxhash's own binding gives."""
    assert checksum(data) == xxhash.xxh3_64_intdigest(bytes(data))


@pytest.mark.parametrize("of", [checksum, device_sum])
def test_every_flipped_bit_changes_it(data, of):
    """Each to a value of its own, so that no two flips are taken for one another either."""
    sums = {of(data), *(of(flipped(data, bit)) for bit in range(64 * WORDS))}
    assert len(sums) == 64 * WORDS + 1


@pytest.mark.parametrize("of", [checksum, device_sum])
def test_the_same_bit_of_two_words_does_not_cancel(data, of):
    """Two signs, for one: under a sum of weighted words the top bits would."""
    for bit in range(64):
        sums = {of(data), *(of(flipped(data, bit, bit + 64 * other)) for other in range(1, WORDS))}
        assert len(sums) == WORDS


@pytest.mark.parametrize("of", [checksum, device_sum])
def test_words_that_change_places_change_it(of):
    """The same words in another order are other bytes; the twin, the same words in the same order, are not."""
    data = torch.arange(16, dtype=torch.uint8)
    assert of(data) != of(data.roll(8))
    assert of(data) == of(data.clone())


def test_a_cards_sum_is_splitmix(data):
    """Against an oracle without tensors."""
    assert device_sum(data) == splitmix_sum(data)


@pytest.mark.parametrize("chunk", [1, 3, 8, 100])
def test_chunks_change_nothing(data, monkeypatch, chunk):
    """A word's place counts from the start of the frame, not of its chunk."""
    whole = device_sum(data)
    monkeypatch.setattr(module, "CHUNK", chunk)
    assert device_sum(data) == whole


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_card_sums_as_the_cpu_does(data):
    """The same integers there."""
    assert checksum(data.cuda()) == splitmix_sum(data)
