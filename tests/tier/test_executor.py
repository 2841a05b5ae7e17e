"""Forwards over pages give the bits of transformers' own cache; copies move pages and are waited for."""

import pytest
import torch

from harness.core.bits import first_divergence
from harness.tier.protocol import Tier
from harness.tier.reference.cache import PagedCache
from harness.tier.reference.executor import Work
from harness.tier.reference.identity import PLAIN, Identity
from harness.tier.reference.network import PLACEHOLDER
from harness.tier.reference.streams import Stream
from tests.tier.paged import CHUNK, feed, generate, prompt, tables

PROMPT = prompt(300)
NEW = 5
SPOKEN = [PLAIN, Identity("formal"), Identity("terse", "2"), Identity(version="2"), Identity(media=b"a"), Identity(media=b"b")]


def check_same(executor, ids, spoken=PLAIN):
    tokens, logits = generate(executor, ids, tables(executor, len(ids) + NEW), NEW, spoken)
    expected, theirs = executor.anew(ids, spoken, NEW, CHUNK)

    assert tokens == expected
    assert first_divergence(logits, theirs) is None


@pytest.mark.parametrize("length", [1, 16, 31, 32, 33, 97, 300])
def test_pages_give_the_bits_of_a_contiguous_cache(executor, length):
    check_same(executor, PROMPT[:length])


@pytest.mark.parametrize("spoken", SPOKEN[1:], ids=repr)
def test_so_they_do_for_any_identity(executor, spoken):
    before = (PLACEHOLDER,) * executor.network.media_tokens if spoken.media else ()
    check_same(executor, before + PROMPT[:100], spoken)


GATHER, WRITE = PagedCache.gather, PagedCache.write


@pytest.mark.parametrize(
    ("seam", "wrong"),
    [
        ("gather", lambda self, layer: tuple(part.flip(1) for part in GATHER(self, layer))),
        ("gather", lambda self, layer: tuple(torch.cat((part[:, :, 1:], part[:, :, :1]), 2) for part in GATHER(self, layer))),
        ("gather", lambda self, layer: GATHER(self, 1 - layer) if self.end <= 32 else GATHER(self, layer)),
        ("write", lambda self, layer, keys, values: WRITE(self, layer, values, keys)),
        ("write", lambda self, layer, keys, values: None if self.start == 32 else WRITE(self, layer, keys, values)),
    ],
    ids=["heads-swapped", "rotated", "other-group", "keys-for-values", "a-chunk-not-written"],
)
def test_wrong_caches_are_seen(executor, monkeypatch, seam, wrong):
    monkeypatch.setattr(PagedCache, seam, wrong)
    with pytest.raises(AssertionError):
        check_same(executor, PROMPT[:97])


def by_group(placed, pairs):
    """The pairs of all groups' pages, one group after the other, as many of each."""
    pairs = list(pairs)
    return {group: pairs[at * len(pairs) // len(placed) : (at + 1) * len(pairs) // len(placed)] for at, group in enumerate(placed)}


def restored(executor, lag=0, drop=False):
    """The last chunk of a prompt, cold, and over pages that went to the host and came back to other places."""
    ids, kept = PROMPT[:200], 192
    placed = tables(executor, len(ids))
    cold = feed(executor, ids, placed)
    pages = [page for table in placed.values() for page in table[: kept // executor.page]]
    hosts, places = range(len(pages)), range(63, 63 - len(pages), -1)
    executor.store(by_group(placed, zip(pages, hosts, strict=True)), executor.compute_event()).wait()
    executor.poison(Tier.DEVICE, pages)
    executor.lag("load", lag)
    load = executor.load(by_group(placed, zip(hosts, places, strict=True)), executor.compute_event())
    back = dict(zip(pages, places, strict=True))
    warm = {group: [back.get(page, page) for page in table] for group, table in placed.items()}
    return cold, feed(executor, ids, warm, kept, loads=() if drop else (load,))


@pytest.mark.parametrize("lag", [0, 3])
def test_what_comes_back_from_the_host_gives_the_same_bits(executor, lag):
    cold, warm = restored(executor, lag)

    assert first_divergence(warm.logits, cold.logits) is None
    assert warm.token == cold.token
    assert warm.finite


def test_a_load_that_nobody_waits_for_is_seen(executor):
    cold, warm = restored(executor, lag=3, drop=True)

    assert first_divergence(warm.logits, cold.logits) is not None


def test_a_layer_that_does_not_wait_is_seen(executor, monkeypatch):
    monkeypatch.setattr(PagedCache, "wait_for_layer", lambda *_: None)
    cold, warm = restored(executor, lag=3)

    assert first_divergence(warm.logits, cold.logits) is not None


def stored_in_flight(executor, fenced=True):
    """Whether the host has what a forward in flight writes, stored while it is in flight."""
    placed = tables(executor, CHUNK)
    none = executor.compute_event()
    pending = executor.forward(Work(PROMPT[:CHUNK], 0, placed))
    pages = [*placed["sliding"], *placed["full"]]
    copy = executor.store(by_group(placed, zip(pages, range(4), strict=True)), executor.compute_event() if fenced else none)

    assert not pending.done()
    assert copy.done() is not fenced

    pending.take()

    assert copy.done()

    return all(torch.equal(executor.read(Tier.HOST, host), executor.read(Tier.DEVICE, page)) for host, page in enumerate(pages))


def test_a_store_waits_for_the_forward_that_writes(executor):
    assert stored_in_flight(executor)


def test_a_store_without_its_fence_is_seen(executor):
    assert not stored_in_flight(executor, fenced=False)


@pytest.mark.parametrize("op", ["store", "load"])
def test_a_copy_that_is_made_to_fail_copies_nothing_and_says_so(executor, op):
    executor.write(Tier.DEVICE, 3, torch.ones_like(executor.read(Tier.DEVICE, 3)))
    executor.write(Tier.HOST, 5, torch.full_like(executor.read(Tier.HOST, 5), 2))
    executor.fail_next(op)
    copy = getattr(executor, op)({"full": [(3, 5) if op == "store" else (5, 3)]}, executor.compute_event())

    assert copy.done()
    assert op in copy.failed
    assert executor.read(Tier.DEVICE, 3).unique().tolist() == [1.0]
    assert executor.read(Tier.HOST, 5).unique().tolist() == [2.0]

    again = getattr(executor, op)({"full": [(3, 5) if op == "store" else (5, 3)]}, executor.compute_event())

    assert again.failed is None
    assert torch.equal(executor.read(Tier.DEVICE, 3), executor.read(Tier.HOST, 5))


def test_a_lag_counts_ticks(executor):
    executor.lag("store", 2)
    copy = executor.store({"full": [(0, 0)]}, executor.compute_event())
    executor.tick()

    assert not copy.done()

    executor.tick()

    assert copy.done()


def test_numbers_that_are_not_finite_are_told(executor):
    placed = tables(executor, 64)
    feed(executor, PROMPT[:32], placed)
    executor.poison(Tier.DEVICE, placed["full"][:1])

    assert not executor.forward(Work(PROMPT[32:64], 32, placed)).take().finite


def test_a_table_that_is_too_short_is_refused(executor):
    placed = tables(executor, 32) | {"full": [1]}
    with pytest.raises(ValueError, match="full"):
        executor.forward(Work(PROMPT[:32], 0, placed))


def test_waiting_in_a_stream_is_what_makes_a_layer_wait(executor, monkeypatch):
    monkeypatch.setattr(Stream, "wait", lambda *_: None)
    cold, warm = restored(executor, lag=3)

    assert first_divergence(warm.logits, cold.logits) is not None
