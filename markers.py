"""The vocabulary of marks, and the way from a test to a CI lane. Imports nothing of ours.

Marks say what a test needs; lanes are mark expressions. `register_ci` and `register_cuda_ci` are read from the syntax tree of a suite
and do nothing at run time, so call them at module level with literals only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

MARKS: dict[str, str] = {
    "core_model": "level: the smallest model that shows the behaviour; every pull request",
    "advanced_model": "level: a mid-sized model; nightly",
    "full_model": "level: a model of the size people serve; weekly",
    "cpu": "runs on a CPU",
    "gpu": "needs an accelerator",
    "slow": "full size; not for a laptop",
    "soak": "long drawings of schedules",
    "benchmark": "judges a time or a rate against a budget",
    "duplex": "kind: full-duplex speech batcher",
    "transfer": "kind: KV transfer manager",
    "tier": "kind: tiered prefix-cache server",
    "connector": "kind: what carries bytes under a transfer manager",
    "omni": "an engine of vLLM-Omni",
    "cuda": "platform: CUDA",
    "L4": "card class: compute capability 8.9, 24 GB",
    "H100": "card class: compute capability 9.0, 80 GB; an H200 will do",
    "H200": "card class: compute capability 9.0, 141 GB",
    "cards_1": "one card",
    "cards_2": "two cards",
    "cards_4": "four cards",
    "cards_8": "eight cards",
}
"""Every mark of Assay, with its meaning. pytest rejects any other."""

ENGINE_FIXTURES = ("engine", "fresh_engine", "build_engine", "blueprint")
"""A test that asks for one of these, itself or through others, is judged on engines, and must carry a claim."""
OWN_ENGINE = "build_engine"
"""The one of them that closes the shared engine and builds the test's own."""

KINDS = ("duplex", "transfer", "tier", "connector")
PLATFORMS = ("cuda",)
CARD_CLASSES = ("L4", "H100", "H200")
CARD_COUNTS = (1, 2, 4, 8)


def hardware_marks(*, res: Mapping[str, str], num_cards: int = 1) -> list[pytest.MarkDecorator]:
    """The marks of a test that needs `num_cards` cards, `res` being one platform and its card class: `{"cuda": "H100"}`.

    Raises ValueError for a platform, class or count that no lane knows.
    """
    return [getattr(pytest.mark, name) for name in hardware_mark_names(res=res, num_cards=num_cards)]


def hardware_mark_names(*, res: Mapping[str, str], num_cards: int = 1) -> list[str]:
    """The names of `hardware_marks`."""
    if len(res) != 1:
        raise ValueError(f"hardware_marks(res={dict(res)!r}): name exactly one platform, such as {{'cuda': 'H100'}}")
    ((platform, card_class),) = res.items()
    if platform not in PLATFORMS:
        raise ValueError(f"hardware_marks: unknown platform {platform!r}; there are {', '.join(PLATFORMS)}")
    if card_class not in CARD_CLASSES:
        raise ValueError(f"hardware_marks: unknown card class {card_class!r}; there are {', '.join(CARD_CLASSES)}")
    if num_cards not in CARD_COUNTS:
        raise ValueError(f"hardware_marks: num_cards={num_cards}; lanes have {', '.join(map(str, CARD_COUNTS))}")
    return ["gpu", platform, card_class, f"cards_{num_cards}"]


def profile_mark_names(profile: str, *, platform: str | None, card_class: str | None, num_cards: int) -> list[str]:
    """The marks that a profile brings: `cpu`, or `slow` and its hardware."""
    if platform is None:
        return ["cpu"]
    if card_class is None:
        raise ValueError(f"profile {profile}: platform {platform} needs a card_class of {', '.join(CARD_CLASSES)}")
    return ["slow", *hardware_mark_names(res={platform: card_class}, num_cards=num_cards)]


def hardware_of(names: Iterable[str]) -> tuple[str, str, int] | None:
    """What a test's own marks ask of the hardware: platform, card class and number of cards; None where they ask nothing.

    A test that asks for a platform is judged in profiles of that platform only, and its class and number stand in place of the profile's:
    a claim about two cards needs two, however few its engine needs for others. Raises ValueError where one of the three is missing or
    given twice.
    """
    given = set(names)
    platforms, classes = [p for p in PLATFORMS if p in given], [c for c in CARD_CLASSES if c in given]
    counts = [n for n in CARD_COUNTS if f"cards_{n}" in given]
    if not (platforms or classes or counts):
        return None
    if not len(platforms) == len(classes) == len(counts) == 1:
        raise ValueError(f"marks {', '.join(sorted(given))}: a test that needs hardware takes hardware_marks(...), once")
    return platforms[0], classes[0], counts[0]


def item_mark_names(
    own: Iterable[str], *, kind: str, profile: str, platform: str | None, card_class: str | None, num_cards: int, extra: Iterable[str] = ()
) -> list[str]:
    """Every mark of a test on an engine of `kind` in one of its profiles, each once.

    They are the test's `own`, those that the profile brings, the kind, and the profile's `extra` ones. The class and number of cards
    that the test asks for stand in place of the profile's. Raises ValueError as `hardware_of`, and for a test that asks for another
    platform than the profile's: it is not judged there.
    """
    names = list(own)
    asked = hardware_of(names)
    if asked is not None:
        if asked[0] != platform:
            raise ValueError(f"profile {profile} is of {platform or 'no platform'}, and the test asks for {asked[0]}")
        _, card_class, num_cards = asked
    names += [*profile_mark_names(profile, platform=platform, card_class=card_class, num_cards=num_cards), kind, *extra]
    return list(dict.fromkeys(names))


def register_ci(*, est_time: float, suite: str, profile: str = "cpu") -> None:
    """Say that this module takes about `est_time` seconds an engine in `profile`, as part of CI suite `suite`. Does nothing here."""


def register_cuda_ci(*, est_time: float, suite: str) -> None:
    """`register_ci` with the profile `gpu`. Does nothing here."""
