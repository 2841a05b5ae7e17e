"""What the host tier holds, and what goes there when a place is needed. Prompts are counted in chunks, and memory to the page.

A policy is stated in steps, so these claims are for engines that are stepped.
"""

from random import Random

from fixtures.tier_scene import MakeScene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.bounds import best_cached
from harness.tier.protocol import Tier
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="tier-cpu")
register_cuda_ci(est_time=60, suite="tier-h100")


@claim("tier.eviction.host_tail_first", source="LMCache#1116, #1154: the outer tier is full, and the heads of all prompts are gone")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.TIER_HITS)
def test_host_tail_first(tier_scene: MakeScene) -> None:
    """On the host, too, a prompt gives up the pages at its end first."""
    chunk, per_chunk = tier_scene.shape.chunk, tier_scene.shape.chunk // tier_scene.shape.page
    scene = tier_scene(blocks=tier_scene.room(4), host_blocks=4 * per_chunk)
    # One chunk at a time: pages that are written later were used later, so one is written in the place of the first prompt's tail.
    scene.to_host(scene.text(1, chunks=4))
    scene.to_host(scene.text(1, chunks=4))
    scene.to_host(scene.text(2, chunks=1))
    scene.hits(scene.ask(scene.text(1, chunks=4)), 0, 3 * chunk, "a prompt of 4 chunks, after one of 1")


@claim("tier.eviction.host_capacity", source="vllm#56871: capacity is divided by the number of groups")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.TIER_HITS)
def test_host_capacity(tier_scene: MakeScene) -> None:
    """The host keeps as many pages as it says: a working set for which there is just room comes back from it whole."""
    per_chunk, prompts = tier_scene.shape.chunk // tier_scene.shape.page, 5
    scene = tier_scene(blocks=tier_scene.room(2), host_blocks=prompts * 2 * per_chunk)
    texts = [scene.text(number) for number in range(prompts)]
    scene.to_host(*texts)
    for got in scene.ask_all(texts):
        scene.hits(got, 0, 2 * scene.chunk, "a prompt of the working set")
        scene.drop_device()


@claim("tier.eviction.host_has_heads", source="sglang#26886 (comment): the first pages of a prompt are missing in the outer tier")
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_host_has_heads(tier_scene: MakeScene) -> None:
    """All whole chunks of a prompt are on the host once it is settled, the first page as the last, and come back from there."""
    scene = tier_scene()
    for chunks in (1, 2, 4):
        request = scene.text(chunks, chunks=chunks)
        scene.to_host(request)
        missing = [index for index, page in enumerate(scene.pages(Tier.HOST, request)) if page is None]
        scene.judge.equal(missing, [], f"pages of {chunks} chunks that the host lacks")
        scene.hits(scene.ask(request), 0, chunks * scene.chunk, f"a prompt of {chunks} chunks")


@claim("tier.eviction.host_smaller", source="protocol: Policy; a host tier that holds less than the working set")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
@requires(TierCap.LAB)
def test_host_smaller(tier_scene: MakeScene) -> None:
    """With a host smaller than the working set, each prompt reuses just what the policy leaves of it, and all are answered right."""
    per_chunk = tier_scene.shape.chunk // tier_scene.shape.page
    scene = tier_scene(blocks=tier_scene.room(2), host_blocks=3 * per_chunk)
    # Back and forth: in a cycle, all would be gone each time.
    order = [1, 2, 3, 2, 1, 3, 3, 1]
    reused = 0
    for number in order:
        got = scene.ask(scene.text(number))
        scene.agrees(got, f"prompt {number}")
        scene.right(got, scene.text(number), f"prompt {number}")
        reused += got.tiers.host if got.tiers else 0
    scene.judge.taken(reused, "tokens that came from the host")
    scene.settled()


@claim("tier.eviction.thrashing", source="protocol: Policy; Belady 1966: what no policy can exceed with these places")
@requires(TierCap.POLICY)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
@requires(TierCap.LAB)
def test_thrashing(tier_scene: MakeScene) -> None:
    """With both tiers too small for what is asked at random, each prompt reuses just what the policy leaves, and is answered right."""
    per_chunk = tier_scene.shape.chunk // tier_scene.shape.page
    scene = tier_scene(blocks=tier_scene.room(3), host_blocks=4 * per_chunk)
    draw = Random(scene.judge.seed)
    asked = [scene.text(draw.choice([1, 1, 2, 2, 3, 4]), chunks=draw.choice([1, 2, 3])) for _ in range(40)]
    reused = 0
    for number, request in enumerate(asked):
        got = scene.ask(request)
        scene.agrees(got, f"asking {number}")
        scene.right(got, request, f"asking {number}")
        reused += got.cached_tokens or 0
    places = (scene.declared.device_pages + scene.declared.host_pages) // len(scene.declared.groups) * scene.page
    best = best_cached([request.prompt for request in asked], chunk=scene.chunk, kept=places)
    scene.judge.figure("hit ratio", reused / sum(len(request.prompt) for request in asked), "of all prompt tokens")
    scene.judge.figure("of the best possible", reused / best, "ratio", 1.0)
    scene.judge.demand(0 < reused <= best, got=f"{reused} tokens reused", expected=f"some, and at most {best}: what no policy exceeds")
    scene.settled()
