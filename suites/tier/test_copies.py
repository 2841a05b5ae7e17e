"""Copies between the tiers that are slow, that fail, or that something else happens beside: bytes that are not there are never served."""

from fixtures.tier_scene import MakeScene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Outcome, Stage, Tier
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="tier-cpu")
register_cuda_ci(est_time=40, suite="tier-h100")

LAG = 5
"""Pumps that a copy takes: more than what is done in the meantime."""


@claim("tier.copies.slow_store", source="LMCache#207, tokenspeed#1125 (bot): a page is found before its store is complete")
@requires(TierCap.HOST_TIER)
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
def test_slow_store(tier_scene: MakeScene) -> None:
    """While a page is being written to the host, the host does not have it; once it is there it holds the device's bytes."""
    scene = tier_scene()
    request = scene.text(1)
    scene.lag("store", LAG)
    first = scene.ask(request)
    on_device = scene.pages(Tier.DEVICE, request)
    scene.judge.equal(scene.pages(Tier.HOST, request), [None] * len(on_device), "pages on the host, under way")
    scene.judge.equal(first.tiers.host if first.tiers else 0, 0, "tokens from the host")
    again = scene.ask(request)
    scene.right(again, request, "the same prompt, while its pages are written")
    scene.hits(again, scene.kept(request), 0, "it")

    scene.quiesce()
    for index, (there, here) in enumerate(zip(scene.pages(Tier.HOST, request), on_device, strict=True)):
        for group, content in (here or {}).items():
            scene.judge.same_bits(
                None if there is None else there[group], content, f"page {index} on the host, {group}", source="the device"
            )


@claim("tier.copies.quiesced", source="protocol: quiesce returns once every write-back has landed")
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.TIER_HITS)
@requires(TierCap.LAB)
def test_quiesced(tier_scene: MakeScene) -> None:
    """After `quiesce` all that was computed comes back from the host, however slow the copies are."""
    scene = tier_scene()
    request = scene.text(1)
    scene.lag("store", LAG)
    scene.to_host(request)
    got = scene.ask(request)
    scene.hits(got, 0, scene.kept(request), "the prompt, when all is settled")
    scene.right(got, request, "the prompt")


@claim("tier.copies.ends_while_written", source="vllm#46278, #45704, sglang#20611: a page is copied after somebody else was given it")
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_ends_while_written(tier_scene: MakeScene) -> None:
    """A request that ends while its pages are written to the host can be hit there later, though others wanted its place at once."""
    for lag in range(LAG):
        scene = tier_scene(blocks=tier_scene.room(3) + tier_scene.room(1))
        ends, others = scene.text(1, chunks=3, new=1), [scene.text(number) for number in (2, 3)]
        scene.judge.stimulus = f"copies take {lag} pumps more"
        scene.lag("store", lag)
        for got, request in zip(scene.ask_all([ends, *others], together=True), [ends, *others], strict=True):
            scene.right(got, request, "a request")
        scene.drop_device()
        again = scene.ask(ends)
        scene.right(again, ends, "the first one, from the host")
        scene.hits(again, 0, scene.kept(ends), "it")
        scene.settled()
        scene.engine.close()


@claim("tier.copies.failed_store", source="tokenspeed#1125 (bot), #406 (bot): a failed write-back is acknowledged as stored")
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
def test_failed_store(tier_scene: MakeScene) -> None:
    """Pages whose write-back failed are not on the host: they are computed again, and written again."""
    scene = tier_scene()
    request = scene.text(1, chunks=3)
    scene.engine.lab.fail_next("store")
    scene.to_host(request)
    again = scene.ask(request)
    scene.right(again, request, "the prompt of which a page could not be written")
    scene.hits(again, 0, 0, "it: its first chunk was not stored")
    scene.drop_device()
    scene.hits(scene.ask(request), 0, scene.kept(request), "the prompt, once it is written")
    scene.settled()


@claim(
    "tier.copies.failed_load",
    source="dynamo#15079, vllm#20063: a failed load is counted as done; vllm#49250: recomputed from the wrong place",
)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
def test_failed_load(tier_scene: MakeScene) -> None:
    """A request whose pages cannot be brought back is answered right, or fails and says why; all others are answered right."""
    for lag in (0, 2):
        scene = tier_scene()
        request, beside = scene.text(1, chunks=3), scene.text(2, new=6)
        scene.judge.stimulus = f"loads take {lag} pumps and one fails"
        scene.to_host(request)
        scene.lag("load", lag)
        scene.engine.lab.fail_next("load")
        handles = [scene.submit(beside), scene.submit(request), scene.submit(request)]
        done = scene.finish(handles)
        scene.right(done[handles[0]], beside, "its neighbour")
        for handle, who in zip(handles[1:], ("the request whose load failed", "its twin"), strict=True):
            got = done[handle]
            if got.outcome is Outcome.FAILED:
                scene.judge.demand(bool((got.error or "").strip()), got="FAILED without a reason", expected="the reason")
            else:
                scene.right(got, request, who)
        scene.right(scene.ask(request), request, "the same prompt again")
        scene.settled()
        scene.engine.close()


@claim("tier.copies.slow_load", source="sglang#22811: a buffer is read before its layer is loaded; vllm#47282")
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
def test_slow_load(tier_scene: MakeScene) -> None:
    """A request whose pages come back slowly is answered right, as is its twin, which finds them under way."""
    scene = tier_scene()
    request = scene.text(1, chunks=3)
    scene.to_host(request)
    scene.lag("load", LAG)
    # What is read too early must not be what was there before.
    scene.engine.lab.poison_free()
    first, twin = scene.submit(request), scene.submit(request)
    scene.reach(first, Stage.LOADING)
    done = scene.finish([first, twin])
    for handle, who in ((first, "the request that loads"), (twin, "its twin")):
        scene.right(done[handle], request, who)
    scene.hits(done[first], 0, scene.kept(request), "the request that loads")
    scene.settled()


@claim("tier.copies.host_pinned", source="sglang#31427, #26728: a host page is given away while it is loaded back")
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_host_pinned(tier_scene: MakeScene) -> None:
    """Pages on the host that are being loaded back keep their place there, though new ones want it."""
    per_chunk = tier_scene.shape.chunk // tier_scene.shape.page
    scene = tier_scene(host_blocks=2 * per_chunk, max_running=2)
    request, writes = scene.text(1), scene.text(2, chunks=3, new=6)
    for lag in range(LAG):
        scene.begin()
        scene.judge.stimulus = f"the load takes {lag} pumps more"
        scene.lag("load", 0)
        scene.to_host(request)
        scene.lag("load", lag)
        # The one that writes is ahead, so that its first chunk is done while the other one loads.
        writing = scene.submit(writes)
        loading = scene.submit(request)
        done = scene.finish([writing, loading])
        scene.right(done[loading], request, "the request that loads")
        scene.right(done[writing], writes, "the one that writes")
        scene.hits(done[loading], 0, scene.kept(request), "the request that loads")
        scene.settled()


@claim("tier.copies.overlapping", source="TensorRT-LLM#15546, #15607: a host buffer is written again while its copy is pending")
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
def test_overlapping(tier_scene: MakeScene) -> None:
    """Several prompts that are loaded back at once, while others are written, each get their own pages."""
    scene = tier_scene(max_running=4)
    loaded, written = [scene.text(number) for number in (1, 2)], [scene.text(number, chunks=3) for number in (3, 4)]
    scene.to_host(*loaded)
    for op, lag in (("load", 2), ("store", 3)):
        scene.lag(op, lag)
    requests = [loaded[0], written[0], loaded[1], written[1]]
    for got, request in zip(scene.ask_all(requests, together=True), requests, strict=True):
        scene.right(got, request, "one of four requests")
    scene.drop_device()
    for got, request in zip(scene.ask_all(written), written, strict=True):
        scene.right(got, request, "a prompt that was written then")
        scene.hits(got, 0, scene.kept(request), "it")


@claim("tier.copies.on_their_way", source="protocol: Policy, host pages that are hit are kept on the device again; sglang#22811")
@requires(TierCap.BATCH)
@requires(TierCap.STEPPED)
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
@requires(TierCap.TIER_HITS)
def test_on_their_way(tier_scene: MakeScene) -> None:
    """Pages on their way to the device are hit there by another request, which waits for them and is right."""
    scene = tier_scene()
    stem = scene.text(1)
    twins = [scene.request((*stem.prompt, token), max_new_tokens=2, want_logits=True) for token in (5, 6)]
    for lag in (0, 2, 4):
        scene.begin()
        scene.judge.stimulus = f"two requests of one prefix, whose load takes {lag} pumps"
        scene.to_host(stem)
        scene.lag("load", lag)
        for got, request, tiers in zip(scene.ask_all(twins, together=True), twins, ("host", "device"), strict=True):
            hits = {"device": 0, "host": 0, tiers: scene.kept(stem)}
            scene.hits(got, hits["device"], hits["host"], f"the request that hits the {tiers}")
            scene.right(got, request, f"the request that hits the {tiers}")
        scene.lag("load", 0)


@claim("tier.copies.dropped_behind", source="protocol: drop_device; Policy, a copy under way keeps both its ends from going, whoever asks")
@requires(TierCap.STEPPED)
@requires(TierCap.ABORT)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
@requires(TierCap.TIER_HITS)
def test_dropped_behind(tier_scene: MakeScene) -> None:
    """What is on its way to the device when the device's pages are dropped is there for the next request, though the first has left."""
    scene = tier_scene()
    request = scene.text(1)
    scene.to_host(request)
    scene.lag("load", 3)
    handle = scene.submit(request)
    scene.reach(handle, Stage.LOADING)
    scene.abort(handle)
    scene.drop_device()
    got = scene.ask(request)
    scene.hits(got, scene.kept(request), 0, "the next request")
    scene.right(got, request, "the next request")
    scene.lag("load", 0)
