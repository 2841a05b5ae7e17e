"""Rows out of a paged cache and into one, against oracles that go token by token."""

import pytest
import torch

from harness.transfer.protocol import KVLayout
from harness.transfer.reference.pages import PagedCache
from harness.transfer.workload import Workload, expected_rows

WORK = Workload()


@pytest.fixture
def kv():
    return WORK.kv(torch.Generator().manual_seed(1))


@pytest.fixture
def cache():
    return PagedCache(WORK.layout())


@pytest.mark.parametrize("block_ids", [[0, 1, 2], [4, 0, 3], [2, 2, 1]])
def test_rows_follow_the_block_table(kv, cache, block_ids):
    """Token t stands in block_ids[t // 4] at row t % 4, in keys and in values of each layer."""
    payload = cache.read(kv, block_ids, 10)
    for layer, pages in enumerate(kv):
        keys, values = expected_rows(pages, block_ids, 10)
        assert torch.equal(payload.keys[layer], keys)
        assert torch.equal(payload.values[layer], values)


def test_another_block_table_gives_other_rows(kv, cache):
    """The twin of the above: order matters."""
    assert not torch.equal(cache.read(kv, [0, 1], 8).keys[0], cache.read(kv, [1, 0], 8).keys[0])


def test_short_blocks_are_read_whole(kv, cache):
    """Two blocks of 4 hold 8 of 10 tokens."""
    payload = cache.read(kv, [0, 1], 10)
    assert {tuple(t.shape) for t in (*payload.keys, *payload.values)} == {(8, 4, 8)}


def test_surplus_rows_are_left(kv, cache):
    """Five tokens of two blocks: the last three rows belong to nobody."""
    assert len(cache.read(kv, [0, 1], 5).keys[0]) == 5


def test_rows_are_a_snapshot(kv, cache):
    """A block that is reused afterwards does not change what was read."""
    payload = cache.read(kv, [0], 4)
    before = payload.keys[0].clone()
    kv[0].zero_()
    assert torch.equal(payload.keys[0], before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_narrow_dtypes_are_gathered_bit_for_bit(kv, dtype):
    """The bytes of a row are those of its page."""
    layout = KVLayout(2, 4, 4, 8, dtype)
    narrow = [pages.to(dtype) for pages in kv]
    rows = PagedCache(layout).read(narrow, [1], 4).values[1]
    assert torch.equal(rows.view(torch.uint8), narrow[1][1, 1].contiguous().view(torch.uint8))


@pytest.mark.parametrize("seq_len", [0, -1])
def test_a_request_has_a_token(kv, cache, seq_len):
    """No or fewer tokens are refused."""
    with pytest.raises(ValueError, match="seq_len"):
        cache.read(kv, [0], seq_len)


@pytest.mark.parametrize("block_ids", [[5], [-1], [0, 99]])
def test_blocks_that_do_not_exist_are_refused(kv, cache, block_ids):
    """A negative id does not count from the end."""
    with pytest.raises(ValueError, match=f"{block_ids[-1]}.*outside a cache of 5 blocks"):
        cache.read(kv, block_ids, 4)


def test_an_empty_block_table_is_refused(kv, cache):
    """There is nothing to send."""
    with pytest.raises(ValueError, match="block table is empty"):
        cache.read(kv, [], 4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kv: kv[:1], "1 KV tensors for a layout of 2 layers"),
        (lambda kv: [kv[0], kv[1].half()], "layer 1: KV of torch.float16"),
        (lambda kv: [kv[0][:, :, :, :2], kv[1]], "layer 0: KV of shape"),
        (lambda kv: [kv[0], kv[1][0]], "layer 1: KV of shape"),
    ],
    ids=["layers", "dtype", "heads", "no values"],
)
def test_another_layout_is_refused(kv, cache, change, said):
    """The text names the layer and what was expected."""
    with pytest.raises(ValueError, match=said):
        cache.read(change(kv), [0], 4)
