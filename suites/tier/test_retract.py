"""A running request can lose its pages and go on later: its answer is the one that it would have given."""

from collections.abc import Callable

from fixtures.tier_scene import MakeScene, Scene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Completion, Request, Stage
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="tier-cpu")
register_cuda_ci(est_time=40, suite="tier-h100")

LAG = 5
"""Pumps that a copy takes: more than what is done in the meantime."""


@claim(
    "tier.retract.every_step",
    source="vllm#28787, #48245, #38624: output in flight is kept over a preemption; sglang#11900: counts are added",
)
@requires(TierCap.RETRACT)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
@requires(TierCap.CACHED_TOKENS)
def test_every_step(tier_scene: MakeScene) -> None:
    """Whichever step a request is retracted after, it has each token once, and counts as cached what was at its first admission."""
    scene = tier_scene()
    beside, moved = scene.text(1, new=4), scene.text(2, new=4)
    steps = len(moved.prompt) // scene.chunk + moved.max_new_tokens
    for cached in (0, scene.kept(moved)):
        for pumps in range(1, steps - cached // scene.chunk):
            scene.judge.stimulus = f"{cached} tokens cached, retracted after {pumps} pumps"
            scene.begin()
            if cached:
                scene.ask(moved)
            handles = [scene.submit(beside), scene.submit(moved)]
            scene.pump(pumps)
            scene.retract(handles[1])

            done = scene.finish(handles)
            scene.right(done[handles[0]], beside, "its neighbour")
            scene.right(done[handles[1]], moved, "the retracted request")
            scene.judge.equal(done[handles[1]].cached_tokens, cached, "cached tokens", source="its first admission")
            scene.settled()


@claim("tier.retract.again_and_again", source="vllm#48245: a token told twice, or not at all, after the second preemption")
@requires(TierCap.RETRACT)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_again_and_again(tier_scene: MakeScene) -> None:
    """A request that is retracted at every stage on its way still gives each token once."""
    scene = tier_scene()
    moved = scene.text(1, new=4)
    handle = scene.submit(moved)
    for stage in (Stage.PREFILL, Stage.DECODE, Stage.DECODE):
        scene.reach(handle, stage, more=1)
        scene.retract(handle)

    scene.right(scene.end(handle), moved, "the request that was retracted three times")
    scene.settled()


@claim("tier.retract.loading", source="vllm#44101: pins of a load that nobody waits for any more; sglang#11900")
@requires(TierCap.RETRACT)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_loading(tier_scene: MakeScene) -> None:
    """A request that is retracted while its pages come back from the host goes on later; its hits are those of its first admission."""

    def loads(scene: Scene, moved: Request) -> int:
        scene.to_host(moved)
        scene.lag("load", LAG)
        handle = scene.submit(moved)
        scene.reach(handle, Stage.LOADING)
        return handle

    scene, moved = _full(tier_scene), 2
    got = _retracted(scene, loads)
    scene.hits(got, 0, scene.kept(scene.text(moved, chunks=3)), "the retracted request")


@claim("tier.retract.write_back", source="vllm#46278, tokenspeed#767: a retraction while pages are written to the host")
@requires(TierCap.RETRACT)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_write_back(tier_scene: MakeScene) -> None:
    """A request that is retracted while a page of it is written to the host goes on later, and the host keeps the right bytes."""

    def is_written(scene: Scene, moved: Request) -> int:
        scene.lag("store", LAG)
        handle = scene.submit(moved)
        scene.reach(handle, Stage.PREFILL, more=1)
        return handle

    scene = _full(tier_scene)
    _retracted(scene, is_written)
    moved = scene.text(2, chunks=3)
    scene.drop_device()
    again = scene.ask(moved)
    scene.right(again, moved, "the retracted prompt, from the host")
    scene.judge.taken(again.tiers.host if again.tiers else 0, "tokens of it that came from the host")


@claim("tier.retract.host_full", source="tokenspeed#767: a retraction fails on the host's capacity and is not rolled back")
@requires(TierCap.RETRACT)
@requires(TierCap.HOST_TIER)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_host_full(tier_scene: MakeScene) -> None:
    """A retraction for whose pages the host has no place loses no page: what fitted before fits after."""
    per_chunk = tier_scene.shape.chunk // tier_scene.shape.page
    scene = tier_scene(blocks=tier_scene.room(3), host_blocks=per_chunk, max_running=1)
    moved, whole = scene.text(1), scene.text(2, chunks=3)
    scene.lag("store", LAG)
    for stage in (Stage.PREFILL, Stage.DECODE):
        handle = scene.submit(moved)
        scene.reach(handle, stage)
        scene.retract(handle)
        scene.right(scene.end(handle), moved, "the retracted request")
        scene.settled()
        # It takes every page of the pool.
        scene.right(scene.ask(whole), whole, "a request that fills the device")


@claim("tier.retract.goes_first", source="protocol: retract, it waits before all others")
@requires(TierCap.RETRACT)
@requires(TierCap.SIZES)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_goes_first(tier_scene: MakeScene) -> None:
    """A retracted request is admitted again before those that waited behind it."""
    scene = tier_scene(max_running=1)
    moved, waits = scene.text(1), scene.text(2)
    first, second = scene.submit(moved), scene.submit(waits)
    scene.reach(first, Stage.DECODE)
    scene.retract(first)
    scene.pump()
    stages = [scene.engine.lab.stage(handle) for handle in (first, second)]
    scene.judge.demand(
        stages[0] is not Stage.QUEUED and stages[1] is Stage.QUEUED,
        got=f"the retracted request is in {stages[0].value}, the one behind it in {stages[1].value}",
        expected="the retracted one admitted, and the other queued",
    )
    for handle, request in ((first, moved), (second, waits)):
        scene.right(scene.end(handle), request, "a request")


def _full(tier_scene: MakeScene) -> Scene:
    """A server with places for two requests of three chunks at a time: what goes is taken by whoever comes next."""
    return tier_scene(blocks=2 * tier_scene.room(3), max_running=2)


def _retracted(scene: Scene, come: Callable[[Scene, Request], int]) -> Completion:
    """With a neighbour that decodes all the while, and another request that waits, one is brought so far, and retracted."""
    __tracebackhide__ = True
    beside, moved, waits = scene.text(1, new=12), scene.text(2, chunks=3), scene.text(3, chunks=3)
    running = scene.submit(beside)
    handle = come(scene, moved)
    behind = scene.submit(waits)
    scene.retract(handle)

    done = scene.finish([running, handle, behind])
    scene.right(done[running], beside, "its neighbour")
    scene.right(done[handle], moved, "the retracted request")
    scene.right(done[behind], waits, "the one behind it")
    scene.right(scene.ask(moved), moved, "the same prompt again")
    scene.lag("store", 0)
    scene.lag("load", 0)
    scene.settled()
    return done[handle]


@claim("tier.retract.failed_load", source="protocol: Completion, cached_tokens came from a cache when the request was first admitted")
@requires(TierCap.RETRACT)
@requires(TierCap.STEPPED)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.LAB)
def test_failed_load(tier_scene: MakeScene) -> None:
    """A retracted request whose pages then fail to come back still counts what its first admission hit, and is right."""
    scene = tier_scene()
    moved = scene.text(1, new=4)
    scene.to_host(moved)
    handle = scene.submit(moved)
    scene.reach(handle, Stage.DECODE, more=1)
    scene.retract(handle)
    scene.drop_device()
    scene.fail_next("load")

    got = scene.end(handle)
    scene.judge.equal(got.cached_tokens, scene.kept(moved), "cached tokens", source="its first admission")
    scene.right(got, moved, "the retracted request")


@claim("tier.retract.aborted", source="protocol: abort, its completion has the tokens that it had; retract, as if nothing had been")
@requires(TierCap.RETRACT)
@requires(TierCap.ABORT)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_aborted(tier_scene: MakeScene) -> None:
    """A request that is aborted tells the tokens that it had, retracted before or not."""
    scene = tier_scene()
    request = scene.text(1, new=6)
    scene.learn(request)
    owed = scene.owed[request].token_ids or ()
    for retracted in (False, True):
        scene.begin()
        handle = scene.submit(request)
        scene.reach(handle, Stage.DECODE, more=2)
        if retracted:
            scene.retract(handle)
        scene.abort(handle)
        got = scene.result(handle)
        told = got.token_ids or () if got is not None else ()
        scene.judge.taken(len(told), "tokens that it had" + " before it was retracted" * retracted)
        scene.judge.equal(told, owed[: len(told)], "tokens of the aborted request", source="the same network without a cache")
