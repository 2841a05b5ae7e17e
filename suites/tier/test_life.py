"""Twins, restarts, and forgetting: a server's answers do not depend on what it went through."""

from fixtures.tier_scene import MakeScene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Stage, Tier
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="tier-cpu")
register_cuda_ci(est_time=40, suite="tier-h100")


@claim("tier.life.twins", source="sgl-project/mini-sglang#142: a duplicate's page is freed while its table points to it")
@requires(TierCap.BATCH)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_twins(tier_scene: MakeScene) -> None:
    """Of one prompt asked twice at once both are right, though a third wants every page that is free."""
    scene = tier_scene(blocks=2 * tier_scene.room(2, new=8) + 1, host="off", max_running=3)
    twin, third = scene.text(1, new=8), scene.text(2, new=4)
    handles = [scene.submit(twin), scene.submit(twin)]
    scene.reach(handles[1], Stage.DECODE)
    handles.append(scene.submit(third))
    scene.pump(2)

    done = scene.finish(handles)
    for handle, request, who in zip(handles, (twin, twin, third), ("the first twin", "the second twin", "the third"), strict=True):
        scene.right(done[handle], request, who)
    scene.settled()


@claim("tier.life.one_copy", source="protocol: Policy, pages are kept under one key; a second copy is room that others lack")
@requires(TierCap.BATCH)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.STEPPED)
@requires(TierCap.TIER_HITS)
def test_one_copy(tier_scene: MakeScene) -> None:
    """Of one prompt asked twice at once only one copy is kept: a working set that just fits with it is warm."""
    one = 2 * tier_scene.shape.chunk
    scene = tier_scene(blocks=3 * one // tier_scene.shape.page + 1, host="off", max_running=2)
    twin, others = scene.text(1), [scene.text(number) for number in (2, 3)]
    scene.ask_all([twin, twin], together=True)
    scene.ask_all(others)
    for request, got in zip([twin, *others], scene.ask_all([twin, *others]), strict=True):
        scene.hits(got, scene.kept(request), 0, "a prompt of the working set")


@claim(
    "tier.life.end_without_start",
    source="protocol: Policy, each page of a run is on the device or on the host; tokenspeed#767 (places lost)",
)
@requires(TierCap.BATCH)
@requires(TierCap.ABORT)
@requires(TierCap.HOST_TIER)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_end_without_start(tier_scene: MakeScene) -> None:
    """A prompt whose end the device keeps, and whose start only the host has, hits both, and no page is lost over it."""
    scene = tier_scene(blocks=2 * tier_scene.room(2, new=8), max_running=3)
    prompt, pushes = scene.text(1, new=8), scene.text(2, new=8)
    goes, stays = scene.submit(prompt), scene.submit(prompt)
    # The first chunk is kept as the first twin's, who leaves; the second chunk as the other's, who goes on with a first one of its own.
    scene.pump(2)
    scene.abort(goes)
    scene.pump()
    third = scene.submit(pushes)
    scene.finish([goes, stays, third])
    per_chunk = scene.per_chunk
    kept = [page is not None for page in scene.pages(Tier.DEVICE, prompt)]
    scene.judge.equal(kept, [False] * per_chunk + [True] * per_chunk, "pages of the prompt that the device keeps", source="the policy")

    got = scene.ask(prompt)
    scene.hits(got, scene.chunk, scene.chunk, "the prompt")
    scene.right(got, prompt, "the prompt")
    scene.settled()


@claim("tier.life.branches", source="tenstorrent/tt-xla#4190: what follows a hit is written over the shared prefix")
@requires(TierCap.BATCH)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_branches(tier_scene: MakeScene) -> None:
    """Requests that go on from one prefix each in their own way, all at once, leave the prefix and each other as they are."""
    scene = tier_scene()
    stem = scene.text(1)
    longer = [scene.request(stem.prompt + scene.ids(1, extra=1, of=number), max_new_tokens=4, want_logits=True) for number in (2, 3, 4)]
    scene.ask(stem)
    for got, request in zip(scene.ask_all([*longer, stem], together=True), [*longer, stem], strict=True):
        scene.right(got, request, "one of the branches")
    for got, request in zip(scene.ask_all([stem, *longer]), [stem, *longer], strict=True):
        scene.right(got, request, "one of the branches, asked again")


@claim("tier.life.flush", source="protocol: flush forgets everything that is kept, in all tiers")
@requires(TierCap.FLUSH)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.TOKEN_IDS)
def test_flush(tier_scene: MakeScene) -> None:
    """After a flush nothing is hit, in any tier, and the same prompts can be kept anew."""
    scene = tier_scene()
    request = scene.text(1)
    for who in ("at first", "after a flush"):
        cold, warm = scene.ask(request), scene.ask(request)
        scene.judge.equal(cold.cached_tokens, 0, f"cached tokens {who}")
        scene.judge.taken(warm.cached_tokens or 0, f"cached tokens {who}, asked again")
        scene.judge.equal(warm.token_ids, cold.token_ids, f"new tokens {who}, asked again", source="the first time")
        scene.flush()


@claim("tier.life.flush_refused", source="protocol: flush, RuntimeError while a request is not done")
@requires(TierCap.FLUSH)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_flush_refused(tier_scene: MakeScene) -> None:
    """While a request waits or runs, forgetting is refused, and the request goes on."""
    scene = tier_scene()
    request = scene.text(1)
    scene.ask(request)
    handle = scene.submit(request)
    scene.judge.refused(scene.engine.flush, "a flush while a request waits", (RuntimeError,))
    scene.pump()
    scene.judge.refused(scene.engine.flush, "a flush while a request runs", (RuntimeError,))
    scene.right(scene.end(handle), request, "the request")


@claim("tier.life.dropped_while_running", source="protocol: drop_device lets go of what is used by no request")
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
def test_dropped_while_running(tier_scene: MakeScene) -> None:
    """Dropping what the device keeps, at any step, takes nothing from those who run."""
    scene = tier_scene()
    runs, idle = scene.text(1, new=4), scene.text(2)
    for pumps in range(len(runs.prompt) // scene.chunk + runs.max_new_tokens):
        scene.judge.stimulus = f"dropped after {pumps} pumps"
        scene.begin()
        scene.ask(idle)
        handle = scene.submit(runs)
        scene.pump(pumps)
        scene.engine.drop_device()
        scene.engine.lab.poison_free()
        scene.right(scene.end(handle), runs, "the one that runs")
        scene.settled()


@claim("tier.life.restart", source="an engine built anew has nothing: not in a tier that outlives it either, unless it says so")
@requires(TierCap.TOKEN_IDS)
@requires(TierCap.CACHED_TOKENS)
@requires(TierCap.EXACT_RESTORE)
def test_restart(tier_scene: MakeScene) -> None:
    """A server that is built again starts cold, and gives the same answers."""
    before: dict[int, tuple[int, ...] | None] = {}
    nonce = 0
    for boot in ("first", "second"):
        scene = tier_scene()
        # The same prompts to both.
        scene.nonce = nonce = nonce or scene.nonce
        for number in (1, 2):
            got = scene.ask(scene.text(number))
            scene.judge.equal(got.cached_tokens, 0, f"cached tokens of prompt {number} on the {boot} server")
            scene.judge.equal(got.token_ids, before.setdefault(number, got.token_ids), f"its new tokens on the {boot} server")
        scene.engine.close()
