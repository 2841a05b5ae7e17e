"""`tier/tokenspeed-scheduler` without its package: options, blocks, hits, and a plan carried out. With it: requests from both tiers."""

import importlib.util

import pytest
import torch

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.tier.driver import generate
from harness.tier.engines.tokenspeed_carrier import Carrier, Prompted, blocks_of
from harness.tier.engines.tokenspeed_options import Options
from harness.tier.engines.tokenspeed_plan import Extent, Kind, Plan, Transfer
from harness.tier.engines.tokenspeed_scheduler import TokenSpeedScheduler, _hits
from harness.tier.protocol import Outcome, Request, Tier, TierHits
from harness.tier.reference.config import FULL, SIZES, SLIDING
from harness.tier.reference.executor import Executor
from harness.tier.reference.network import Network

INSTALLED = pytest.mark.skipif(
    importlib.util.find_spec("tokenspeed_scheduler") is None,
    reason="tokenspeed-scheduler is not installed: make engine NAME=tokenspeed-scheduler",
)
PAGE = 16
TOKENS = tuple(3 + number * 7 % 500 for number in range(40))


@pytest.fixture(scope="module")
def network():
    return Network(SIZES["tiny"], torch.device("cpu"))


@pytest.fixture
def executor(network):
    return Executor(network, PAGE, 17, 17, torch.device("cpu"))


def extent(start, length, *, last=True, full=(1, 2, 3), sliding=(4, 5, 6)):
    return Extent("1", start, length, last, {FULL: full, SLIDING: sliding}, start)


def plan(*extents, copies=(), transfers=()):
    return Plan(copies, transfers, extents, {})


def logits(carrier, *plans):
    """Of the last of these steps."""
    for step in plans:
        launched = carrier.carry(step, {"1": Prompted(TOKENS, len(TOKENS), True)})
        taken = [block.take() for each in launched for block in each.blocks]
    return taken[-1].logits


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hots": "on"}, "unknown option 'hots'; nearest: host"),
        ({"host": "yes"}, "option host"),
        ({"page": "0"}, "option page = '0'"),
        ({"device_pages": "1"}, "option device_pages = '1'"),
        ({"chunk": "40"}, "a multiple of page = 16"),
        ({"retract_every": "-3"}, "option retract_every"),
    ],
)
def test_a_wrong_option_is_named(given, says):
    with pytest.raises(ValueError, match=says):
        Options.parse(given)


def test_without_a_host_tier_there_are_no_host_pages():
    assert (Options.parse({"host": "off"}).host_pages, Options.parse({}).host_pages > 0) == (0, True)


@pytest.mark.parametrize(
    ("start", "end", "prompt", "blocks"),
    [
        (0, 40, 40, [(0, 16), (16, 32), (32, 40)]),
        (28, 40, 40, [(16, 32), (32, 40)]),
        (32, 33, 40, [(32, 33)]),
        (40, 41, 40, [(40, 41)]),
        (39, 42, 40, [(32, 40), (40, 41), (41, 42)]),
    ],
)
def test_blocks_are_whole_pages_of_the_prompt_and_then_single_tokens(start, end, prompt, blocks):
    """Wherever the scheduler cuts, so that a warm request computes what a cold one did."""
    assert list(blocks_of(start, end, prompt, PAGE)) == blocks


def test_tokens_are_counted_by_the_tier_of_their_page():
    """The page in the middle came from the host, and of the last one only the tokens that were not computed."""
    assert _hits(40, [[1, 2, 3]], {2}, PAGE) == TierHits(24, 16)
    assert _hits(40, [[1, 2, 3], [0, 5, 6]], {6}, PAGE) == TierHits(32, 8)
    assert _hits(32, [[1, 2, 3]], {3}, PAGE) == TierHits(32, 0)


def test_a_cut_in_the_middle_of_a_page_changes_no_bit(executor):
    whole = logits(Carrier(executor, PAGE), plan(extent(0, 40)))
    cut = logits(
        Carrier(executor, PAGE),
        plan(extent(0, 28, last=False, full=(7, 8, 9), sliding=(10, 11, 12))),
        plan(extent(28, 12, full=(7, 8, 9), sliding=(10, 11, 12))),
    )

    assert torch.equal(whole, cut)


def test_a_page_given_on_within_a_plan_is_read_before_it_is_written(executor):
    """Of two copies in a ring neither source is lost."""
    pages = [executor.read(Tier.DEVICE, page) for page in (1, 2)]
    for content, page in zip((1.0, 2.0), pages, strict=True):
        page.fill_(content)
    Carrier(executor, PAGE).carry(plan(copies=((1, 2), (2, 1))), {})

    assert [float(page.flatten()[0]) for page in pages] == [2.0, 1.0]


def test_what_is_written_back_unpinned_is_read_before_the_page_is_loaded_over(executor):
    executor.read(Tier.DEVICE, 1).fill_(1.0)
    executor.read(Tier.HOST, 2).fill_(2.0)
    back = Transfer(Kind.LOAD_BACK, 0, {FULL: [(2, 1)]}, pinned=True)
    away = Transfer(Kind.WRITE_BACK, 1, {FULL: [(1, 3)]}, pinned=False)
    carrier = Carrier(executor, PAGE)
    carrier.carry(plan(transfers=(back, away)), {})

    assert {transfer.number for transfer in carrier.landed(wait=True)} == {0, 1}
    assert [float(executor.read(tier, page).flatten()[0]) for tier, page in ((Tier.DEVICE, 1), (Tier.HOST, 3))] == [2.0, 1.0]


def test_a_forward_waits_for_what_is_loaded_into_its_pages(executor):
    """The load is slow; the twin, which is told of no load, computes with what lay there before."""
    carrier = Carrier(executor, PAGE)
    cold = logits(carrier, plan(extent(0, 40)))
    away = Transfer(Kind.WRITE_BACK, 0, {FULL: [(1, 1), (2, 2)], SLIDING: [(4, 4), (5, 5)]}, pinned=True)
    carrier.carry(plan(transfers=(away,)), {})
    carrier.landed(wait=True)
    for page in (1, 2, 4, 5):
        executor.read(Tier.DEVICE, page).zero_()
    spoilt = logits(carrier, plan(extent(32, 8)))
    executor.lag("load", 5)
    back = Transfer(Kind.LOAD_BACK, 1, {FULL: [(1, 1), (2, 2)], SLIDING: [(4, 4), (5, 5)]}, pinned=True)
    warm = logits(carrier, plan(extent(32, 8), transfers=(back,)))

    assert torch.equal(warm, cold)
    assert not torch.equal(spoilt, cold)


def test_a_copy_that_failed_is_not_told_as_done(executor):
    executor.fail_next("store")
    carrier = Carrier(executor, PAGE)
    carrier.carry(plan(transfers=(Transfer(Kind.WRITE_BACK, 7, {FULL: [(1, 1)]}, pinned=True),)), {})

    with pytest.raises(RuntimeError, match="write_back 7 failed"):
        carrier.landed()


def server(**options):
    return TokenSpeedScheduler.build(
        EngineConfig("cpu", "cpu", {"device_pages": "40", "host_pages": "64", **options}, seed=0), VirtualClock()
    )


@INSTALLED
@pytest.mark.parametrize("options", [{}, {"retract_every": "3"}])
def test_a_request_is_the_same_cold_warm_and_from_the_host(options):
    engine = server(**options)
    asked = Request(TOKENS, 6, want_logits=True)
    cold, warm = generate(engine, [asked, asked])
    engine.drop_device()
    (back,) = generate(engine, [asked])
    held = engine.usage()
    engine.close()

    assert [each.tiers for each in (cold, warm, back)] == [TierHits(0, 0), TierHits(32, 0), TierHits(0, 32)]
    assert torch.equal(cold.logits, warm.logits)
    assert torch.equal(cold.logits, back.logits)
    assert set(held.values()) == {0}


@INSTALLED
def test_an_abort_between_steps_frees_everything_after_the_next():
    engine = server()
    handle = engine.submit(Request(TOKENS, 6))
    engine.pump()
    engine.abort(handle)
    held = engine.usage()["device_pages"]
    engine.pump()

    assert engine.result(handle).outcome is Outcome.ABORTED
    assert (held > 0, engine.usage()["device_pages"]) == (True, 0)
    engine.close()


@INSTALLED
@pytest.mark.parametrize(
    "request_",
    [
        Request(()),
        Request((1,), 0),
        Request((512,)),
        Request((-1,)),
        Request((1,) * 4000),
        Request((1,), salt="a"),
        Request((1,), adapter="b"),
    ],
)
def test_what_can_never_be_served_is_refused_and_not_queued(request_):
    engine = server()
    with pytest.raises(ValueError, match="tier/tokenspeed-scheduler"):
        engine.submit(request_)

    assert engine.usage()["requests"] == engine.usage()["waiting"] == 0
    engine.close()
