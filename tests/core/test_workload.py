"""The transfer workload: its constants fit each other, and its oracle reads the right rows."""

import re

import pytest
import torch

from harness.transfer.protocol import Endpoint
from harness.transfer.workload import Workload, expected_rows


def test_the_seeds_figures():
    """The defaults are the seeds', and two blocks hold 8 of the 10 tokens."""
    load = Workload()

    assert (load.layers, load.blocks, load.block_size, load.heads, load.head_dim, load.seq_len) == (2, 5, 4, 4, 8, 10)
    assert (load.endpoint, load.receive_timeout) == (Endpoint("127.0.0.1", 50051), 1.0)
    assert (load.seed_block_ids, load.block_ids) == ([0, 1], [0, 1, 2])


@pytest.mark.parametrize(("seq_len", "blocks"), [(1, 1), (4, 1), (5, 2), (8, 2), (20, 5)])
def test_as_many_blocks_as_the_tokens_need(seq_len, blocks):
    """A block that begins is a block."""
    assert Workload(seq_len=seq_len).block_ids == list(range(blocks))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seq_len": 0}, "seq_len = 0 does not fit 5 blocks of 4 tokens"),
        ({"seq_len": 21}, "seq_len = 21 does not fit 5 blocks of 4 tokens"),
        ({"blocks": 1, "seq_len": 4}, "blocks = 1: the seeds' block table names two"),
        ({"blocks": -5, "block_size": -4}, "blocks = -5"),
        ({"layers": 0}, "layers, heads and head_dim are at least 1"),
        ({"heads": 0}, "layers, heads and head_dim are at least 1"),
        ({"head_dim": 0}, "layers, heads and head_dim are at least 1"),
        ({"many_layers": 10}, "many_layers at least 11"),
        ({"receive_timeout": 0.0}, "receive_timeout = 0.0, schedule_timeout = 0.1: give seconds above 0"),
        ({"receive_timeout": float("nan")}, "receive_timeout = nan, schedule_timeout = 0.1: give seconds above 0"),
    ],
    ids=str,
)
def test_constants_that_do_not_fit(changes, text):
    """Are refused with what is wrong."""
    with pytest.raises(ValueError, match=re.escape(text)):
        Workload(**changes)


def test_constants_that_just_fit():
    """The least of each, and the most tokens."""
    Workload(layers=1, blocks=2, block_size=1, heads=1, head_dim=1, seq_len=1, many_layers=11, receive_timeout=1e-3)
    Workload(seq_len=20)


def test_many_layers_tell_orders_apart():
    """Sorted by name, the layers come out in another order than by number."""
    layers = list(range(Workload().many_layers))

    assert sorted(layers, key=str) != layers


def test_kv_is_the_generators():
    """One tensor a layer in the layout's shape; the same seed gives the same bits, no two layers are alike."""
    load = Workload()
    kv, again = (load.kv(torch.Generator().manual_seed(7), load.layout(3)) for _ in range(2))

    assert [t.shape for t in kv] == [(2, 5, 4, 4, 8)] * 3
    assert all(map(torch.equal, kv, again))
    assert not torch.equal(kv[0], kv[1])
    assert (len(load.kv(torch.Generator())), load.layout().layers, load.layout(12).layers) == (2, 2, 12)


@pytest.mark.parametrize(
    ("block_ids", "seq_len", "rows"),
    [
        ([0, 1], 3, [0, 1, 10]),
        ([0, 1], 4, [0, 1, 10, 11]),
        ([2, 0], 3, [20, 21, 0]),
        ([1], 1, [10]),
        ([1, 1], 4, [10, 11, 10, 11]),
        ([2], 5, [20, 21]),
    ],
    ids=["partial", "whole", "reordered", "one", "repeated", "fewer blocks than tokens"],
)
def test_expected_rows(block_ids, seq_len, rows):
    """Token by token in block-table order; tokens beyond the blocks are not there. Keys stand first, values second."""
    kv = torch.tensor([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]]).reshape(1, 3, 2, 1, 1)
    keys, values = expected_rows(torch.cat([kv, kv + 100]), block_ids, seq_len)

    assert keys.flatten().tolist() == rows
    assert values.flatten().tolist() == [100 + row for row in rows]
    assert keys.shape == (len(rows), 1, 1)
