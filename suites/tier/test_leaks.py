"""After many requests, some of them aborted and some retracted on their way, nothing is held and nothing is lost."""

from random import Random

from fixtures.tier_scene import MakeScene, Scene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Outcome, Request, Stage
from markers import register_ci, register_cuda_ci

register_ci(est_time=8, suite="tier-cpu")
register_cuda_ci(est_time=120, suite="tier-h100")

TEXTS = 4
AT_ONCE = 8
"""Requests that are not done at one time, more than run."""
MOST_LAG = 3


@claim("tier.leaks.requests", source="LMCache#3884, #987, #1756; vllm#44101, #35931: references that nobody gives back; tokenspeed#767")
@requires(TierCap.ABORT)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
def test_requests(tier_scene: MakeScene) -> None:
    """After a thousand requests with random aborts, retractions and slow copies, the server holds what it held at the start."""
    scene = _crowded(tier_scene)
    _wander(scene, scene.workload.requests)
    scene.settled()


@claim("tier.leaks.capacity", source="LMCache#993, tokenspeed#767: free pages become fewer, and at last nothing is hit")
@requires(TierCap.ABORT)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.POLICY)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.LAB)
def test_capacity(tier_scene: MakeScene) -> None:
    """After many requests with random aborts and retractions each tier has room for as much as at the start, to the page."""
    scene = _crowded(tier_scene)
    _wander(scene, scene.workload.requests // 10)
    for op in ("store", "load"):
        scene.lag(op, 0)
    scene.quiesce()
    scene.engine.flush()
    # Both tiers were built for just these, and a page for their last token.
    fits = [scene.text(100 + number) for number in range(_FITS)]
    scene.ask_all(fits)
    for number, got in enumerate(scene.ask_all(fits)):
        scene.hits(got, scene.kept(fits[number]), 0, f"prompt {number} of a set that just fits")
    for number, request in enumerate(fits):
        scene.drop_device()
        scene.hits(scene.ask(request), 0, scene.kept(request), f"prompt {number} of the set, from the host")
    whole = scene.text(200, chunks=2 * _FITS)
    scene.right(scene.ask(whole), whole, "a prompt that takes every page")


@claim("tier.leaks.results", source="protocol: result, what it came to, once; sglang#34112 (a token after the end)")
@requires(TierCap.ABORT)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_results(tier_scene: MakeScene) -> None:
    """Of many requests, results that nobody asks for until all are done are each told once, and nothing is held for them after."""
    scene = tier_scene()
    requests = [scene.text(number % TEXTS, chunks=1) for number in range(2 * TEXTS)]
    handles = [scene.submit(request) for request in requests]
    for handle in handles[::3]:
        scene.abort(handle)
    for handle in handles:
        scene.reach(handle, Stage.DONE)
    for number, handle in reversed(list(enumerate(handles))):
        got = scene.result(handle)
        scene.judge.demand(got is not None, got=f"no result of request {number}", expected="one: it is done")
        if number % 3 and got is not None:
            scene.right(got, requests[number], f"request {number}")
        elif got is not None:
            scene.judge.equal(got.outcome, Outcome.ABORTED, f"outcome of request {number}")
        scene.judge.refused(lambda handle=handle: scene.engine.result(handle), f"the result of request {number} once more", (KeyError,))
    scene.settled()


_FITS = 2
"""Prompts of two chunks for which both tiers have just room."""


def _crowded(tier_scene: MakeScene) -> Scene:
    return tier_scene(
        blocks=tier_scene.room(2 * _FITS), host_blocks=2 * _FITS * tier_scene.shape.chunk // tier_scene.shape.page, max_running=3
    )


def _wander(scene: Scene, count: int) -> None:
    """Submit `count` requests of a few prompts; abort and retract some, at random but by the run's seed. All others are answered right.

    The engine is asked itself: what a stage remembers of each request would cost more than the requests.
    """
    __tracebackhide__ = True
    draw, under_way, retracts = Random(scene.judge.seed), {}, scene.offers(TierCap.RETRACT)
    ended = dict.fromkeys(Outcome, 0)
    sent = 0
    while sent < count or under_way:
        if sent < count and len(under_way) < AT_ONCE:
            request = _any(scene, draw)
            under_way[scene.engine.submit(request)] = request
            sent += 1
        act, handle = draw.random(), draw.choice(list(under_way))
        if act < 0.5:
            scene.engine.abort(handle)
        elif act < 0.62 and retracts:
            # One that waits, or is done, stays as it is.
            scene.engine.retract(handle)
        elif act < 0.68:
            scene.engine.lab.lag(draw.choice(["store", "load"]), draw.randint(0, MOST_LAG))
        elif act < 0.71 and scene.offers(TierCap.DROP_DEVICE):
            scene.engine.drop_device()
        else:
            scene.engine.pump()
        for handle in list(under_way):
            got = scene.engine.result(handle)
            if got is None:
                continue
            request = under_way.pop(handle)
            ended[got.outcome] += 1
            if got.outcome is not Outcome.ABORTED:
                scene.right(got, request, f"one of {sent} requests")
    for outcome in (Outcome.FINISHED, Outcome.ABORTED):
        scene.judge.taken(ended[outcome], f"requests that ended {outcome.value}")


def _any(scene: Scene, draw: Random) -> Request:
    """One of the prompts, of a page, or one or two chunks and a token."""
    chunks = draw.choice([0, 0, 1, 1, 2])
    return scene.text(draw.randrange(TEXTS), chunks=chunks, more=1 if chunks else scene.page, new=draw.choice([1, 1, 2]))
