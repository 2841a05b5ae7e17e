"""A request can be ended at any time: all that it held is free, and nobody else's answer changes."""

from collections.abc import Callable

from fixtures.tier_scene import MakeScene, Scene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Outcome, Request, Stage, Tier
from markers import register_ci, register_cuda_ci

register_ci(est_time=3, suite="tier-cpu")
register_cuda_ci(est_time=60, suite="tier-h100")

LAG = 5
"""Pumps that a copy takes: more than what is done in the meantime."""


@claim("tier.abort.every_step", source="sglang#38319, vllm#44101: pages and locks of an aborted request")
@requires(TierCap.ABORT)
@requires(TierCap.STEPPED)
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.EXACT_RESTORE)
def test_every_step(tier_scene: MakeScene) -> None:
    """Whichever step a request is aborted after, it is told as aborted, and its neighbour, its twin and the next get right tokens."""
    scene = tier_scene()
    beside, ended, after = (scene.text(number, new=3) for number in (1, 2, 3))
    scene.learn(beside, ended, after)
    # Cold, it takes a step for each chunk, the last one begun too, and for each further token.
    steps = len(ended.prompt) // scene.chunk + ended.max_new_tokens
    for pumps in range(steps):
        scene.judge.stimulus = f"aborted after {pumps} pumps"
        scene.begin()
        first, second = scene.submit(beside), scene.submit(ended)
        scene.pump(pumps)
        if pumps and scene.result(second) is not None:
            # An engine may take more of a prompt in a step than is counted here.
            scene.finish([first])
            break
        scene.abort(second)
        third, twin = scene.submit(after), scene.submit(ended)

        done = scene.finish([first, second, third, twin])
        scene.judge.equal(done[second].outcome, Outcome.ABORTED, "outcome of the aborted request")
        for handle, request, who in ((first, beside, "its neighbour"), (third, after, "the next"), (twin, ended, "its twin")):
            scene.right(done[handle], request, who)
        scene.settled()


@claim("tier.abort.queued", source="sglang#34112, vllm#44101: an abort before the first step")
@requires(TierCap.ABORT)
@requires(TierCap.STEPPED)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_queued(tier_scene: MakeScene) -> None:
    """A request that is aborted while it waits for pages lets those behind it go on, and none of it is computed."""
    scene = _full(tier_scene, running=3)
    beside, waits, behind = scene.text(1, new=4), scene.text(2, chunks=5), scene.text(3, chunks=1)
    running = scene.submit(beside)
    scene.pump()
    waiting, next_one = scene.submit(waits), scene.submit(behind)
    scene.pump()
    scene.judge.equal(scene.engine.lab.stage(waiting), Stage.QUEUED, "stage of the request that does not fit")
    scene.abort(waiting)
    scene.pump()
    came = scene.engine.lab.stage(next_one)
    scene.judge.demand(came is not Stage.QUEUED, got=f"the one behind it is {came.value}", expected="it is admitted: it fits")

    done = scene.finish([running, waiting, next_one])
    scene.judge.equal(done[waiting].outcome, Outcome.ABORTED, "outcome of the aborted request")
    scene.right(done[running], beside, "its neighbour")
    scene.right(done[next_one], behind, "the one behind it")
    scene.judge.equal(scene.pages(Tier.DEVICE, waits), [None] * (5 * scene.per_chunk), "pages kept of it")
    scene.settled()


@claim("tier.abort.loading", source="vllm#44101, LMCache#4852: locks of a load that nobody needs any more; sglang#31427")
@requires(TierCap.ABORT)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_loading(tier_scene: MakeScene) -> None:
    """A request that is aborted while its pages come back from the host frees everything, and whoever gets its place is answered right."""

    def loads(scene: Scene, ended: Request) -> int:
        scene.to_host(ended)
        scene.lag("load", LAG)
        handle = scene.submit(ended)
        scene.reach(handle, Stage.LOADING)
        return handle

    _aborted(_full(tier_scene), loads)


@claim("tier.abort.prefill", source="sglang#38319, #38355: chunks of an unfinished request are in the cache, and freed on abort")
@requires(TierCap.ABORT)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_prefill(tier_scene: MakeScene) -> None:
    """A request that is aborted between two chunks frees everything; what of it is kept, and who gets the rest, is right."""

    def computes(scene: Scene, ended: Request) -> int:
        handle = scene.submit(ended)
        scene.reach(handle, Stage.PREFILL, more=1)
        return handle

    _aborted(_full(tier_scene), computes)


@claim("tier.abort.write_back", source="vllm#46278, sglang#20611: a page is given away while it is copied")
@requires(TierCap.ABORT)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_write_back(tier_scene: MakeScene) -> None:
    """A request that is aborted while a page of it is written to the host frees everything, and the host keeps the right bytes."""

    def is_written(scene: Scene, ended: Request) -> int:
        scene.lag("store", LAG)
        handle = scene.submit(ended)
        scene.reach(handle, Stage.PREFILL, more=1)
        scene.judge.equal(scene.pages(Tier.HOST, ended)[0], None, "the first page on the host at the abort")
        return handle

    scene, ended = _full(tier_scene), 2
    _aborted(scene, is_written)
    scene.lag("store", 0)
    scene.drop_device()
    again = scene.ask(scene.text(ended))
    scene.right(again, scene.text(ended), "the aborted prompt, from the host")
    scene.judge.taken(again.tiers.host if again.tiers else 0, "tokens of it that came from the host")


@claim("tier.abort.decode", source="vllm#28787: a token that was under way is kept")
@requires(TierCap.ABORT)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_decode(tier_scene: MakeScene) -> None:
    """A request that is aborted between two tokens frees everything, and whoever gets its place is answered right."""

    def decodes(scene: Scene, ended: Request) -> int:
        handle = scene.submit(ended)
        scene.reach(handle, Stage.DECODE, more=1)
        return handle

    _aborted(_full(tier_scene), decodes)


@claim("tier.abort.place_loaded_into", source="sglang#36738, vllm#47282: a load-back writes a page that an earlier step still uses")
@requires(TierCap.ABORT)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_place_loaded_into(tier_scene: MakeScene) -> None:
    """A prompt that is loaded back into the place of a request just aborted, whose last step is still under way, is answered right."""
    chunks = 3
    scene = tier_scene(blocks=tier_scene.room(chunks, new=4), max_running=1)
    request, ended = scene.text(1, chunks, new=4), scene.text(2, chunks, new=4)
    for more in range(chunks + 2):
        scene.judge.stimulus = f"aborted {more} pumps after its admission"
        scene.to_host(request)
        handle = scene.submit(ended)
        scene.pump(1 + more)
        scene.abort(handle)
        got = scene.ask(request)

        scene.right(got, request, "the prompt that is loaded back")
        scene.hits(got, 0, scene.kept(request), "it")
        scene.judge.equal(scene.end(handle).outcome, Outcome.ABORTED, "outcome of the aborted request")
        scene.settled()
        scene.begin()


@claim("tier.abort.shared_prefix", source="sglang#38319: pages that others hold are freed with the aborted request")
@requires(TierCap.ABORT)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_shared_prefix(tier_scene: MakeScene) -> None:
    """Aborting a request leaves the pages that another running request shares with it."""
    scene = _full(tier_scene)
    first, longer, fresh = scene.text(1, new=6), scene.text(1, new=12), scene.text(2, chunks=5)
    scene.ask(first)
    stays, goes = scene.submit(longer), scene.submit(first)
    scene.pump(2)
    scene.abort(goes)
    next_one = scene.submit(fresh)

    done = scene.finish([stays, goes, next_one])
    scene.hits(done[stays], scene.kept(longer), 0, "the one that stays")
    scene.right(done[stays], longer, "the one that stays")
    scene.right(done[next_one], fresh, "the next")
    scene.settled()


@claim("tier.abort.done", source="protocol: abort, its completion is ABORTED, unless it was done")
@requires(TierCap.ABORT)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_done(tier_scene: MakeScene) -> None:
    """Aborting a request that is done, and whose result nobody has taken, changes nothing; aborting twice is as once."""
    scene = tier_scene()
    request = scene.text(1)
    handle, other = scene.submit(request), scene.submit(scene.text(2))
    scene.reach(handle, Stage.DONE)
    for _ in (1, 2):
        scene.abort(handle)
    scene.right(scene.end(handle), request, "the request that was done")

    gone = scene.submit(scene.text(3))
    for _ in (1, 2):
        scene.abort(gone)
    done = scene.finish([other, gone])
    scene.judge.equal(done[gone].outcome, Outcome.ABORTED, "outcome of the one aborted twice")
    scene.right(done[other], scene.text(2), "its neighbour")
    scene.settled()


def _full(tier_scene: MakeScene, running: int = 2) -> Scene:
    """A server with places for two requests of three chunks at a time: who comes next is given the pages of whoever went."""
    return tier_scene(blocks=2 * tier_scene.room(3), max_running=running)


def _aborted(scene: Scene, come: Callable[[Scene, Request], int]) -> None:
    """With a neighbour that decodes all the while, a request is brought so far, and aborted; another is admitted at once."""
    __tracebackhide__ = True
    beside, ended, after = scene.text(1, new=12), scene.text(2, chunks=3, new=6), scene.text(3, chunks=3)
    running = scene.submit(beside)
    victim = come(scene, ended)
    scene.abort(victim)
    next_one = scene.submit(after)

    done = scene.finish([running, victim, next_one])
    scene.judge.equal(done[victim].outcome, Outcome.ABORTED, "outcome of the aborted request")
    scene.right(done[running], beside, "its neighbour")
    scene.right(done[next_one], after, "the next")
    scene.right(scene.ask(ended), ended, "the aborted prompt, asked again")
    scene.settled()
