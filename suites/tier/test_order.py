"""Who comes first: steps begin when the policy says, and what is used last goes last, also after a retraction or a failed load."""

from fixtures.tier_scene import MakeScene, Scene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Completion, Request, Stage
from markers import register_ci, register_cuda_ci

register_ci(est_time=3, suite="tier-cpu")
register_cuda_ci(est_time=60, suite="tier-h100")


@claim(
    "tier.order.steps", source="protocol: Policy, a write-back is over before the same step admits; pages of a request that ended are free"
)
@requires(TierCap.STEPPED)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.HOST_TIER)
def test_steps(tier_scene: MakeScene) -> None:
    """Requests that wait for each other's pages are done after just as many steps as the policy says, each of them."""
    # A prompt of whole chunks and one new token ends in the step that begins to write its last pages.
    for more, new in ((0, 1), (1, 1), (1, 2), (1, 3)):
        scene = tier_scene(blocks=tier_scene.room(2, more=more, new=new), max_running=2)
        scene.judge.stimulus = f"three requests of two chunks, {more} tokens more and {new} new ones, in a pool for one"
        check_steps(scene, [scene.text(number, 2, more=more, new=new) for number in (1, 2, 3)])
        scene.engine.close()


def check_steps(scene: Scene, requests: list[Request]) -> None:
    """After each step the requests that are done are those that the oracle says are."""
    __tracebackhide__ = True
    assert scene.oracle is not None
    handles = [scene.submit(request) for request in requests]
    done: dict[int, bool] = dict.fromkeys(handles, False)
    pumps = 0
    while not all(done.values()):
        scene.pump()
        pumps += 1
        for handle in handles:
            done[handle] = done[handle] or scene.result(handle) is not None
        expected = {handle: scene.oracle.done(handle) for handle in handles}
        scene.judge.equal(list(done.values()), list(expected.values()), f"requests done after {pumps} pumps", source="the policy")


@claim("tier.order.used_last", source="protocol: Policy, request by request in the order of admission; a retracted one is admitted again")
@requires(TierCap.BATCH)
@requires(TierCap.STEPPED)
@requires(TierCap.RETRACT)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.TIER_HITS)
def test_used_last(tier_scene: MakeScene) -> None:
    """Of two requests that end in one step, the one that was admitted last is used last, whichever was sent first."""
    chunks = 1
    together = 0
    for more in range(1, 7):
        scene = tier_scene(blocks=2 * tier_scene.room(chunks, new=8), host="off", max_running=2)
        scene.judge.stimulus = f"the first of two is retracted, and the second asks for {more} tokens more"
        first, second = scene.text(1, chunks, new=2), scene.text(2, chunks, new=2 + more)
        handles = [scene.submit(first), scene.submit(second)]
        scene.pump(2)
        scene.retract(handles[0])
        together += ends_together(scene, handles)
        scene.agrees(scene.ask(scene.text(3, chunks, new=8)), "what pushes one of them out")
        for request in (second, first):
            scene.agrees(scene.ask(request), "one of the two, asked again")
        scene.engine.close()
    scene.judge.taken(together, "times that both ended in one step")


def ends_together(scene: Scene, handles: list[int]) -> int:
    """Pump until they are done; 1 if the last two ended in the same step."""
    left, ended = list(handles), 0
    while left:
        scene.pump()
        now = [handle for handle in left if scene.result(handle) is not None]
        left, ended = [handle for handle in left if handle not in now], len(now)
    return int(ended == len(handles))


@claim("tier.order.left_is_used", source="protocol: Policy, a page is used when a request that holds it ends or is retracted")
@requires(TierCap.BATCH)
@requires(TierCap.STEPPED)
@requires(TierCap.ABORT)
@requires(TierCap.RETRACT)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.TIER_HITS)
def test_left_is_used(tier_scene: MakeScene) -> None:
    """What a request held counts as used when it is aborted, or retracted, not when it began."""
    long, short, pushes = (1, 1, 30), (2, 1, 1), (3, 2, 20)
    kept = 2 * tier_scene.shape.chunk // tier_scene.shape.page
    for retracted in (False, True):
        # The third needs one place more than is free beside what the two left.
        scene = tier_scene(blocks=kept + tier_scene.room(pushes[1], new=pushes[2]) - 1, host="off", max_running=2)
        scene.judge.stimulus = "the first is retracted, and then aborted" if retracted else "the first is aborted"
        first, second, third = (scene.text(number, chunks, new=new) for number, chunks, new in (long, short, pushes))
        handle = scene.submit(first)
        scene.pump(2)
        scene.ask(second)
        if retracted:
            scene.retract(handle)
        scene.abort(handle)
        scene.agrees(scene.ask(third), "what pushes one of them out")
        asked = scene.ask(first)
        scene.agrees(asked, "the first, asked again")
        scene.judge.taken(asked.cached_tokens or 0, "tokens that the first reused")
        scene.agrees(scene.ask(second), "the second, asked again")
        scene.engine.close()


@claim(
    "tier.order.failed_together",
    source="protocol: Policy, a failed load undoes the admission; requests are admitted in the order in which they came",
)
@requires(TierCap.BATCH)
@requires(TierCap.STEPPED)
@requires(TierCap.SIZES)
@requires(TierCap.POLICY)
@requires(TierCap.HOST_TIER)
@requires(TierCap.LAB)
def test_failed_together(tier_scene: MakeScene) -> None:
    """Requests whose common load fails go on in the order in which they came, and both are right."""
    shared = tier_scene.room(2, more=0, new=1)
    # Room for what both share and a block for each: when nothing is shared any more, one of them waits.
    scene = tier_scene(blocks=shared + 2, max_running=2)
    stem = scene.text(1, 2, new=1)
    twins = [scene.request((*stem.prompt[:-1], token), max_new_tokens=2, want_logits=True) for token in (5, 6)]
    scene.to_host(stem)
    handles = [scene.submit(request) for request in twins]
    scene.fail_next("load")
    done: dict[int, Completion] = {}
    while len(done) < len(handles):
        scene.pump()
        done |= {handle: told for handle in handles if handle not in done and (told := scene.result(handle)) is not None}
        first, second = (handle in done or scene.engine.lab.stage(handle) is not Stage.QUEUED for handle in handles)
        scene.judge.demand(first or not second, got="the second runs, and the first waits", expected="the order in which they came")
    for handle, request in zip(handles, twins, strict=True):
        scene.right(done[handle], request, "one of the two")
    scene.settled()
