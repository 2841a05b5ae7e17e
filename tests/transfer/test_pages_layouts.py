"""Rows out of, and into, paged caches of every layout: packed and split, both orders of a block, every dtype."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.transfer.protocol import KVLayout, KVOrder, KVPayload, Pages
from harness.transfer.reference.pages import PagedCache
from tests.transfer.paged import LAYOUTS, any_bits, bits, cache, copied, holds, row, same, untouched

BLOCKS = 6


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS)
def layout(request):
    return request.param


def payload(layout, tokens, seed=100):
    tensors = [any_bits((tokens, layout.heads, layout.head_dim), layout.dtype, seed + n) for n in range(2 * layout.layers)]
    return KVPayload(tuple(tensors[0::2]), tuple(tensors[1::2]))


def written_by_hand(layout, kv, block_ids, rows, first):
    """The oracle of a write: a copy of the cache, token by token."""
    kv = copied(kv)
    for part, tensors in enumerate((rows.keys, rows.values)):
        for layer, tensor in enumerate(tensors):
            for number in range(len(tensor)):
                row(layout, kv, layer, part, block_ids, first + number).view(torch.uint8).copy_(bits(tensor[number]))
    return kv


def test_rows_are_read_bit_for_bit(layout):
    """Keys and values of every layer, by the block table, as tensors of the layout's heads."""
    kv = cache(layout)
    got = PagedCache(layout).read(kv, [4, 0, 3], 10)
    assert {tuple(tensor.shape) for tensor in (*got.keys, *got.values)} == {(10, 3, 8)}
    assert holds(layout, kv, [4, 0, 3], got)


def test_the_oracle_tells_layouts_apart(layout):
    """The twin of the above: another table, keys for values, or one bit, and it is not what stands there."""
    kv = cache(layout)
    got = PagedCache(layout).read(kv, [4, 0, 3], 10)
    one_bit = got.values[1].clone()
    one_bit.view(torch.uint8)[9, 2, -1] ^= 1
    assert not holds(layout, kv, [4, 3, 0], got)
    assert not holds(layout, kv, [4, 0, 3], KVPayload(got.values, got.keys))
    assert not holds(layout, kv, [4, 0, 3], KVPayload(got.keys, (got.values[0], one_bit)))


@pytest.mark.parametrize(("tokens", "first"), [(10, 0), (5, 3), (1, 11), (12, 0), (0, 4)])
def test_rows_are_written_where_they_belong_and_nowhere_else(layout, tokens, first):
    """The whole cache, bit for bit, is what an oracle makes of it by hand."""
    kv, block_ids, rows = cache(layout), [5, 1, 2], payload(layout, tokens)
    want = written_by_hand(layout, kv, block_ids, rows, first)
    assert untouched(kv, want) is (tokens == 0)
    PagedCache(layout).write(Pages(kv, block_ids), rows, first)
    assert untouched(kv, want)


@given(
    packed=st.booleans(),
    order=st.sampled_from(KVOrder),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e4m3fn]),
    size=st.integers(1, 5),
    data=st.data(),
)
def test_what_is_read_can_be_written_elsewhere(packed, order, dtype, size, data):
    """For any table, length and first token: reading it back gives the same bits, and the rest of the cache is as it was."""
    layout = KVLayout(1, size, 2, 3, dtype, packed, order)
    blocks = data.draw(st.permutations(range(BLOCKS)), "blocks")[: data.draw(st.integers(1, BLOCKS), "number of blocks")]
    tokens = data.draw(st.integers(1, len(blocks) * size), "tokens")
    first = data.draw(st.integers(0, tokens - 1), "first token")
    source, target, paged = cache(layout, BLOCKS), cache(layout, BLOCKS, seed=50), PagedCache(layout)
    rows = paged.read(source, blocks, tokens)
    rest = KVPayload(tuple(k[first:] for k in rows.keys), tuple(v[first:] for v in rows.values))
    want = written_by_hand(layout, target, blocks, rest, first)

    paged.check_room(Pages(target, blocks), tokens)
    paged.write(Pages(target, blocks), rest, first)

    assert untouched(target, want)
    again = paged.read(target, blocks, tokens)
    assert same(again.keys[0][first:], rest.keys[0])
    assert same(again.values[0][first:], rest.values[0])


def test_an_order_taken_for_the_other_is_noticed():
    """The twin: where blocks are square both orders have one shape, and only the bits tell."""
    nhd = KVLayout(1, 4, 4, 8, torch.float32)
    hnd = replace(nhd, order=KVOrder.HND)
    kv = cache(nhd)
    assert not same(PagedCache(nhd).read(kv, [1], 4).keys[0], PagedCache(hnd).read(kv, [1], 4).keys[0])


@pytest.mark.parametrize("tokens", [9, 12])
def test_room_is_room(layout, tokens):
    """As many tokens as three blocks hold, or fewer."""
    PagedCache(layout).check_room(Pages(cache(layout), [5, 0, 2]), tokens)


@pytest.mark.parametrize(
    ("block_ids", "tokens", "said"),
    [
        ([5, 0, 2], 13, "into: 13 tokens for 3 blocks, which hold 12"),
        ([5, 0, 5], 4, r"into: block ids \[5, 0, 5\] name a block twice"),
        ([5, 6], 4, r"block ids \[6\] outside a cache of 6 blocks"),
        ([-1], 4, r"block ids \[-1\] outside"),
        ([], 0, "block table is empty"),
    ],
)
def test_pages_without_room_are_refused(layout, block_ids, tokens, said):
    """A token too many, a block named twice, one that does not exist; and nothing is written by asking."""
    kv = cache(layout)
    before = copied(kv)
    with pytest.raises(ValueError, match=said):
        PagedCache(layout).check_room(Pages(kv, block_ids), tokens)
    assert untouched(kv, before)


def test_pages_of_another_layout_are_refused(layout):
    """The other packing, the other order, fewer heads, another dtype, a layer less: each is told, by reading and by writing."""
    other_dtype = torch.float32 if layout.dtype is not torch.float32 else torch.float16
    others = [
        (replace(layout, packed=not layout.packed), f"packed = {layout.packed}"),
        (replace(layout, order=KVOrder.HND if layout.order is KVOrder.NHD else KVOrder.NHD), "KV of shape"),
        (replace(layout, heads=2), "KV of shape"),
        (replace(layout, dtype=other_dtype), f"expected {layout.dtype}"),
        (replace(layout, layers=1), "1 KV tensors for a layout of 2 layers"),
    ]
    for other, said in others:
        for call in (lambda kv: PagedCache(layout).read(kv, [0], 4), lambda kv: PagedCache(layout).check_room(Pages(kv, [0]), 4)):
            with pytest.raises(ValueError, match=said):
                call(cache(other))


def test_keys_and_values_of_different_lengths_are_refused():
    """A split layer has as many key blocks as value blocks."""
    layout = LAYOUTS["split-nhd-float32"]
    kv = [(keys, values[:3]) for keys, values in cache(layout)]
    with pytest.raises(ValueError, match="layer 0: KV of shape"):
        PagedCache(layout).read(kv, [5], 4)
