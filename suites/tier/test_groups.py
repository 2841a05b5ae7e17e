"""Layers with a window and layers without: each group keeps what its layers attend to, and nothing else is read."""

import torch

from fixtures.tier_scene import MakeScene, Scene
from harness.core.capabilities import TierCap, requires
from harness.core.claims import claim
from harness.tier.protocol import Completion, Group, Request, Stage, Tier
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="tier-cpu")
register_cuda_ci(est_time=40, suite="tier-h100")


@claim("tier.groups.hit_lengths", source="Blaizzy/mlx-vlm#1715, vllm-mlx#775: a ring cut as if it were flat; vllm#50457")
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
@requires(TierCap.LOGITS)
def test_hit_lengths(tier_scene: MakeScene) -> None:
    """Behind a hit shorter than the window, as long, just longer, and several times as long, a prompt is answered as without a cache."""
    window = _sliding(tier_scene()).window or 0
    scene = tier_scene(chunk=window // 2)
    for chunks in (1, 2, 3, 6):
        stem = scene.text(chunks, chunks=chunks)
        # Another end than that which was computed behind the pages at first.
        longer = scene.request(stem.prompt + scene.ids(1, extra=3, of=99), max_new_tokens=4, want_logits=True)
        scene.ask(stem)
        got = scene.ask(longer)
        scene.hits(got, chunks * window // 2, 0, f"a hit of {chunks * window // 2} tokens under a window of {window}")
        scene.right(got, longer, f"a hit of {chunks * window // 2} tokens under a window of {window}")


@claim("tier.groups.window", source="protocol: Group, window says how many positions a token attends to; vllm#51756")
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
@requires(TierCap.LOGITS)
def test_window(tier_scene: MakeScene) -> None:
    """What sliding layers keep before the window of a hit's first new token is not attended to; the page just inside it is."""
    scene, request = _kept(tier_scene)
    group = _sliding(scene)
    # The first token that is computed attends to those from here on.
    begins = scene.kept(request) - (group.window or 0) + 1
    inside, outside = begins // scene.page, begins // scene.page - 1
    scene.judge.taken(int(outside >= 0), "pages before the window")
    for index in (0, outside):
        _change(scene, request, index, group.name)
    scene.right(_warm(scene, request), request, f"a hit whose sliding pages 0 and {outside} were changed, before its window")
    _change(scene, request, inside, group.name)
    _shows(scene, request, f"with sliding page {inside} changed, in its window")


@claim("tier.groups.everything", source="vllm#51756: a group's window is applied to its global layers, and facts older than it are lost")
@requires(TierCap.POLICY)
@requires(TierCap.LAB)
@requires(TierCap.LOGITS)
def test_everything(tier_scene: MakeScene) -> None:
    """Layers without a window attend to everything from the first page on, whichever tier it was kept in."""
    for tier in (Tier.DEVICE, *([Tier.HOST] if tier_scene().offers(TierCap.DROP_DEVICE) else [])):
        for place in (0, -1):
            scene, request = _kept(tier_scene)
            index = place % (scene.kept(request) // scene.page)
            if tier is Tier.HOST:
                scene.drop_device()
            _change(scene, request, index, _full(scene).name, tier)
            _shows(scene, request, f"with full page {index} changed on the {tier.value}")


@claim("tier.groups.both", source="sglang#30057, #31108: only a part of what a page needs comes back; sglang#33713; vllm#50457")
@requires(TierCap.POLICY)
@requires(TierCap.HOST_TIER)
@requires(TierCap.DROP_DEVICE)
@requires(TierCap.LAB)
def test_both(tier_scene: MakeScene) -> None:
    """What comes back from the host are the pages of every group, each with the bytes that it had on the device."""
    scene, request = _kept(tier_scene)
    before = scene.pages(Tier.DEVICE, request)
    scene.drop_device()
    scene.engine.lab.poison_free()
    got = _warm(scene, request)
    scene.hits(got, 0, scene.kept(request), "the prompt from the host")
    for tier in (Tier.HOST, Tier.DEVICE):
        for index, (here, was) in enumerate(zip(scene.pages(tier, request), before, strict=True)):
            for group in scene.declared.groups:
                content = None if here is None else here.get(group.name)
                scene.judge.same_bits(content, (was or {})[group.name], f"{group.name} page {index} on the {tier.value}", source="before")
    scene.right(got, request, "the prompt from the host")


@claim("tier.groups.free_unread", source="flashinfer#942, vllm#936, #47574, flash-attention#2374: memory behind the valid length is read")
@requires(TierCap.STEPPED)
@requires(TierCap.LAB)
@requires(TierCap.LOGITS)
def test_free_unread(tier_scene: MakeScene) -> None:
    """NaN in free pages, and behind the valid length of pages that are held, is never read: before a request, and between any two steps."""
    scene = tier_scene()
    cold, warm = scene.text(1, more=3, new=4), scene.text(1, more=5, new=4)
    for request, who in ((cold, "a cold request"), (warm, "a warm one")):
        scene.engine.lab.poison_free()
        handle = scene.submit(request)
        while scene.engine.lab.stage(handle) is not Stage.DONE:
            scene.pump()
            scene.engine.lab.poison_free()
        got = scene.end(handle)
        scene.right(got, request, who)
    scene.judge.taken(got.cached_tokens or 0, "tokens that the warm one had from a cache")


@claim("tier.groups.reused_pages", source="vllm-mlx#385: what was in a page before shows behind what is in it now; vllm#47574")
@requires(TierCap.POLICY)
@requires(TierCap.SIZES)
@requires(TierCap.LAB)
def test_reused_pages(tier_scene: MakeScene) -> None:
    """Pages that another prompt filled before, to the last position, show nothing of it to the next request in them."""
    scene = tier_scene(blocks=tier_scene.room(3), host="off")
    full = scene.text(1, chunks=3, more=scene.page, new=1)
    for number in (2, 3):
        scene.ask(full)
        for chunks in (0, 1, 2):
            request = scene.text(10 * number + chunks, chunks=chunks, more=number, new=5)
            scene.right(scene.ask(request), request, f"a prompt of {chunks} chunks, in pages that another filled")


def _sliding(scene: Scene) -> Group:
    return next(group for group in scene.declared.groups if group.window is not None)


def _full(scene: Scene) -> Group:
    return next(group for group in scene.declared.groups if group.window is None)


def _kept(tier_scene: MakeScene) -> tuple[Scene, Request]:
    """A server, and a prompt that is kept in both tiers: whole windows, and two pages more at least."""
    scene = tier_scene()
    chunks = -(-((_sliding(scene).window or 0) + 2 * scene.page) // scene.chunk)
    request = scene.text(1, chunks=max(3, chunks), new=3)
    scene.ask(request)
    scene.quiesce()
    return scene, request


def _warm(scene: Scene, request: Request) -> Completion:
    """The request, which hits all its whole chunks."""
    __tracebackhide__ = True
    got = scene.ask(request)
    scene.judge.equal(got.cached_tokens, scene.kept(request), "cached tokens")
    return got


def _change(scene: Scene, request: Request, index: int, group: str, tier: Tier = Tier.DEVICE) -> None:
    """Another content, all of it finite."""
    page = scene.page_kept(tier, request, index)
    assert page is not None, f"page {index} is not kept on the {tier.value}"
    scene.engine.lab.write_page(tier, request, index, group, page[group] + 3)


def _shows(scene: Scene, request: Request, what: str) -> None:
    """The change is read: the logits are others than those without a cache. Unlike a stimulus, this is what the claim demands."""
    __tracebackhide__ = True
    scene.learn(request)
    got, owed = _warm(scene, request).logits, scene.owed[request].logits
    same = got is not None and owed is not None and torch.equal(got, owed)
    scene.judge.demand(not same, got=f"the logits are those without a cache, {what}", expected="others: what is kept there is attended to")
