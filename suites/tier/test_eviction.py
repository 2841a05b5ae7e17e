"""What goes when a place is needed, what stays, and how much the tiers hold. Prompts are counted in chunks, and memory to the page.

A policy is stated in steps, so these claims are for engines that are stepped.
"""

from fixtures.tier_scene import MakeScene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Outcome, Stage, Tier
from markers import register_ci, register_cuda_ci

register_ci(est_time=3, suite="tier-cpu")
register_cuda_ci(est_time=60, suite="tier-h100")


@claim("tier.eviction.least_recent", source="protocol: Policy, the page used longest ago goes first; a hit is a use")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.TIER_HITS)
def test_least_recent(tier_scene: MakeScene) -> None:
    """Of three prompts that fill the device, the one asked for longest ago makes room for a fourth, and the two others stay whole."""
    one = 2 * tier_scene.shape.chunk
    scene = tier_scene(blocks=3 * one // tier_scene.shape.page + 1, host="off")
    scene.ask_all([scene.text(number) for number in (1, 2, 3)])
    scene.hits(scene.ask(scene.text(1)), one, 0, "the first prompt, asked again")
    scene.ask(scene.text(4))

    for number in (4, 1, 3):
        scene.hits(scene.ask(scene.text(number)), one, 0, f"prompt {number}, used since")
    scene.hits(scene.ask(scene.text(2)), 0, 0, "prompt 2, used longest ago")


@claim(
    "tier.eviction.tail_first",
    source="protocol: Policy, of one time the farthest from the start goes; LMCache#4867, llm-d-inference-sim#704",
)
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.TIER_HITS)
def test_tail_first(tier_scene: MakeScene) -> None:
    """A prompt that gives up some of its pages gives up those at its end, so that what is left of it can be hit."""
    chunk = tier_scene.shape.chunk
    scene = tier_scene(blocks=tier_scene.room(4), host="off")
    for gone in (1, 2, 3):
        scene.begin()
        scene.ask(scene.text(1, chunks=4))
        scene.ask(scene.text(2, chunks=gone))
        scene.hits(scene.ask(scene.text(1, chunks=4)), (4 - gone) * chunk, 0, f"a prompt of 4 chunks, after one of {gone}")


@claim("tier.eviction.running_pinned", source="protocol: Policy, what a request uses does not go; sglang#36738")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.LAB)
def test_running_pinned(tier_scene: MakeScene) -> None:
    """Pages that a running request computed, or hit, stay while it runs, whoever needs a place: the other waits, and both are right."""
    scene = tier_scene(blocks=tier_scene.room(2, new=8) + tier_scene.room(1), host="off", max_running=2)
    runs, waits = scene.text(1, new=8), scene.text(2, chunks=3)
    for who in ("that computed them", "that hit them"):
        running = scene.submit(runs)
        scene.reach(running, Stage.DECODE)
        waiting = scene.submit(waits)
        scene.pump(2)
        scene.engine.drop_device()
        scene.judge.equal(scene.engine.lab.stage(waiting), Stage.QUEUED, f"stage of one that needs the pages of a request {who}")
        kept = scene.pages(Tier.DEVICE, runs)
        scene.judge.demand(None not in kept, got=f"pages kept on the device: {kept.count(None)} are gone", expected="all, while it runs")
        done = scene.finish([running, waiting])
        scene.right(done[running], runs, f"the request {who}")
        scene.right(done[waiting], waits, "the one that waited")
        scene.ask(runs)
    scene.settled()


@claim("tier.eviction.hits_pinned", source="LMCache#4133: what the lookup promised is let go before it is used")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_hits_pinned(tier_scene: MakeScene) -> None:
    """Room for a request is never made from the pages that it is about to hit, though they are the oldest."""
    scene = tier_scene(blocks=tier_scene.room(3), host="off")
    stem = scene.text(1)
    scene.ask_all([stem, scene.text(2, chunks=1)])
    longer = scene.text(1, chunks=3)
    got = scene.ask(longer)
    scene.hits(got, scene.kept(stem), 0, "a request that needs all other pages")
    scene.right(got, longer, "it")
    scene.settled()


@claim("tier.eviction.source_pinned", source="vllm#46278: a page is let go while it is being copied; tokenspeed#293 (review)")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
@requires(TierCap.LAB)
def test_source_pinned(tier_scene: MakeScene) -> None:
    """A page that is being written to the host stays on the device until it is there: who needs its place waits."""
    scene = tier_scene(blocks=tier_scene.room(3))
    written, waits = scene.text(1, chunks=3), scene.text(2, chunks=3)
    scene.lag("store", 5)
    scene.ask(written)
    handle = scene.submit(waits)
    scene.pump()
    scene.judge.equal(scene.engine.lab.stage(handle), Stage.QUEUED, "stage of the request that needs the place of pages being written")
    on_device = scene.pages(Tier.DEVICE, written)
    scene.judge.demand(
        None not in on_device, got=f"{on_device.count(None)} of its pages are gone", expected="all, until they are on the host"
    )

    scene.right(scene.end(handle), waits, "the one that waited")
    on_host = scene.pages(Tier.HOST, written)
    for index, (before, after) in enumerate(zip(on_device, on_host, strict=True)):
        for group, content in (before or {}).items():
            scene.judge.same_bits(
                None if after is None else after[group], content, f"page {index} on the host, {group}", source="the device"
            )
    scene.settled()


@claim("tier.eviction.exact_fit", source="arithmetic: pages of the working set, and those that a request needs beside them; vllm#56871")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.TIER_HITS)
def test_exact_fit(tier_scene: MakeScene) -> None:
    """A working set for which there is just room is warm to the last chunk, as with a page more; with a page less a chunk is lost."""
    chunk = tier_scene.shape.chunk
    fits = 3 * 2 * chunk // tier_scene.shape.page + 1
    for blocks in (fits, fits + 1, fits - 1):
        scene = tier_scene(blocks=blocks, host="off")
        prompts = [scene.text(number) for number in (1, 2, 3)]
        scene.ask_all(prompts)
        again = scene.ask_all(prompts)
        for got in again:
            scene.agrees(got)
        reused = sum(got.tiers.device for got in again if got.tiers)
        if blocks >= fits:
            scene.judge.equal(reused, 3 * 2 * chunk, f"tokens reused with {blocks - fits} blocks to spare", source="all whole chunks")
        else:
            scene.judge.demand(
                reused < 3 * 2 * chunk, got=f"{reused} tokens reused with a block too few", expected=f"fewer than {6 * chunk}"
            )
        scene.engine.close()


@claim("tier.eviction.page_short", source="protocol: Policy, a request holds pages for all its positions but the last new token's")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.TOKEN_IDS)
def test_page_short(tier_scene: MakeScene) -> None:
    """A request that takes every page of the pool is served; one that needs a page more is refused, and nothing is queued for it."""
    scene = tier_scene(blocks=tier_scene.room(2), host="off")
    page = scene.page
    whole = scene.text(1, more=1, new=page)
    scene.judge.equal(scene.blocks(whole) * page, 2 * scene.chunk + page, "positions of the larger request")
    got = scene.finished(scene.ask(whole), "the request that fills the pool")
    scene.judge.equal(len(got.token_ids or ()), page, "new tokens of it")
    for what, request in (("a new token", scene.text(2, more=1, new=page + 1)), ("a prompt token", scene.text(2, more=2, new=page))):
        scene.judge.refused(lambda request=request: scene.engine.submit(request), f"{what} more than the pool holds", (ValueError,))
        scene.settled()


@claim("tier.eviction.partial", source="vllm#42656: partial blocks age like cache entries and push out useful ones")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.TIER_HITS)
def test_partial(tier_scene: MakeScene) -> None:
    """Many short prompts, none of which is a whole chunk, pass by without pushing out a page that can be hit."""
    scene = tier_scene(blocks=tier_scene.room(3) + 1, host="off")
    long = scene.text(1, chunks=3)
    scene.ask(long)
    for number in range(2, 40):
        scene.ask(scene.text(number, chunks=0, more=min(scene.page, scene.chunk - 1) - number % 3, new=1))
    scene.hits(scene.ask(long), scene.kept(long), 0, "the long prompt, after 38 short ones")


@claim("tier.eviction.ended_in_use", source="protocol: Policy, a page is used when a request that holds it ends")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.BATCH)
@requires(TierCap.TIER_HITS)
def test_ended_in_use(tier_scene: MakeScene) -> None:
    """What a long request held counts as used when it ends, not when it began."""
    scene = tier_scene(blocks=2 * tier_scene.room(2, new=8), host="off", max_running=2)
    long, short = scene.text(1, new=8), scene.text(2, new=1)
    handles = [scene.submit(long), scene.submit(short)]
    done = scene.finish(handles)
    scene.judge.equal([done[handle].outcome for handle in handles], [Outcome.FINISHED] * 2, "outcomes")
    # It needs more than is free, and no more than one of them kept.
    scene.ask(scene.text(3))
    scene.hits(scene.ask(long), scene.kept(long), 0, "the one that ended last")
