"""Copies by address move the bytes that copies of tensors move."""

import ctypes

import pytest
import torch

from harness.tier.reference import batch, pool
from harness.tier.reference.config import SIZES
from harness.tier.reference.pool import Pool, copy_pages

CONFIG = SIZES["20b"]
PAGES, PAGE = 5, 2
SOURCES, TARGETS = [4, 0, 3], [1, 2, 0]


@pytest.fixture
def pools():
    """Two on the CPU: one of numbers, one of zeros."""
    source, target = (Pool(CONFIG, PAGES, PAGE, torch.device("cpu")) for _ in range(2))
    source.kept.copy_(torch.arange(source.kept.numel()).view_as(source.kept) % 251)
    return source, target


def moved(source: Pool, target: Pool, pieces: range, size: int) -> torch.Tensor:
    """What the target holds once the CPU has moved `size` bytes from each address to its target's."""
    for piece in pieces:
        for here, there in zip(SOURCES, TARGETS, strict=True):
            ctypes.memmove(target.addresses[piece][there], source.addresses[piece][here], size)
    return target.kept


@pytest.mark.parametrize(
    ("pieces", "short", "same"), [(3, 0, True), (2, 0, False), (3, 2, False)], ids=["all", "a piece less", "a number less"]
)
def test_addresses_are_those_of_the_pieces(pools, pieces, short, same):
    source, target = pools
    expected = torch.zeros_like(target.kept)
    expected[TARGETS] = source.kept[SOURCES]

    assert torch.equal(moved(source, target, range(pieces), source.pieces[0][0].nbytes - short), expected) == same


def test_between_pools_of_one_kind_nothing_goes_to_the_driver(pools, monkeypatch):
    source, target = pools
    monkeypatch.setattr(pool.batch, "copy", None)

    for piece in range(CONFIG.pieces):
        copy_pages(source, SOURCES, target, TARGETS, piece)

    assert torch.equal(target.kept[TARGETS], source.kept[SOURCES])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("down", [True, False], ids=["to the card", "to the host"])
def test_a_batch_moves_what_single_copies_move(pools, down):
    source, _ = pools
    card = Pool(CONFIG, PAGES, PAGE, torch.device("cuda"))
    host = Pool(CONFIG, PAGES, PAGE, torch.device("cpu"), pinned=True)
    first, second = (host, card) if down else (card, host)
    first.kept.copy_(source.kept)
    assert batch.submitter() is not None

    with torch.cuda.stream(torch.cuda.Stream()):
        for piece in range(CONFIG.pieces):
            copy_pages(first, SOURCES, second, TARGETS, piece)
    torch.cuda.synchronize()

    assert torch.equal(second.kept[TARGETS].cpu(), source.kept[SOURCES])
    assert not second.kept[4].any()
