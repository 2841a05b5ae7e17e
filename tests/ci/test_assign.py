"""Which lane takes which test: each once in a schedule, where it can run; and the committed lanes take them all."""

from dataclasses import replace

import pytest

from ci.assign import AssignError, assign, selected
from ci.collect import collect
from ci.items import Item
from ci.lanes import Lane, read_lanes
from tests.ci.small_trees import TEST, small_tree

CPU = Lane("cpu", "CPU", "cpu", ("small",), ("own",), "cpu", ("merge",), 1, 1)
CARD = Lane("card", "Card", "slow", ("small-h100",), ("own",), "cuda", ("weekly",), 1, 1, "H100", 1)


@pytest.fixture(scope="module")
def items(tmp_path_factory) -> list[Item]:
    """Two tests on one engine, on a CPU and on a card."""
    return collect(small_tree(tmp_path_factory.mktemp("tree")).root)


@pytest.fixture(scope="module")
def every() -> list[Item]:
    """What the suites hold."""
    return collect()


def errors(items: list[Item], *lanes: Lane) -> list[str]:
    with pytest.raises(AssignError) as wrong:
        assign(items, lanes)
    return list(wrong.value.errors)


def test_the_committed_lanes_take_every_test(every):
    """Each in an environment that has its engine, and once in every schedule."""
    lanes = read_lanes()
    taken = assign(every, lanes)

    assert {item.nodeid for own in taken.values() for there in own.values() for item in there} == {item.nodeid for item in every}
    assert set(taken) == {lane.name for lane in lanes}


def test_slow_on_one_card_is_what_the_weekly_lanes_of_one_card_take(every):
    """`pytest -m slow` on a node with one H100, against the weekly CUDA lanes of one card: the same items.

    Of what -m slow selects, those that ask for more cards are UNAVAILABLE there. Long drawings wait to be asked for by both.
    """
    weekly = [lane for lane in read_lanes() if lane.platform == "cuda" and lane.cards == 1 and "weekly" in lane.schedules]
    taken = assign(every, read_lanes())

    def of(lanes: list[Lane]) -> set[str]:
        return {item.nodeid for lane in lanes for own in taken[lane.name].values() for item in own}

    def on_one_card(expression: str) -> set[str]:
        return {item.nodeid for item in selected(every, expression) if "cards_1" in item.marks}

    assert of([lane for lane in weekly if "soak" not in lane.marks]) == on_one_card("slow") != set()
    assert of([lane for lane in weekly if "soak" in lane.marks]) == on_one_card("slow and soak") != set()


def test_prefix_cache_lane_takes_the_suite_of_the_specification(every):
    """The register of `runtime-prefix-cache-e2e` leads there."""
    own = {item.nodeid for item in every if item.suite == "runtime-prefix-cache-e2e"}
    taken = assign(every, read_lanes())["prefix-cache-h100"]

    assert own <= {item.nodeid for there in taken.values() for item in there}
    assert own


def test_lanes_in_their_environments(items):
    """A test goes where its engine's package is, whichever release of it."""
    elsewhere = [replace(item, environment="vllm") for item in items if item.profile == "cpu"]
    lane = replace(CPU, environments=("vllm", "vllm-0.28"))

    assert assign(items, [CPU, CARD]) == {"cpu": {"own": items[:2]}, "card": {"own": items[2:]}}
    assert assign(elsewhere, [lane]) == {"cpu": {"vllm": elsewhere, "vllm-0.28": elsewhere}}


def test_long_drawings_are_taken_where_they_are_named(items):
    """As with -m; and not by a lane that merely does not speak of them."""
    long = [replace(item, marks=item.marks | {"soak"}) for item in items[:1]]

    assert selected(long, "cpu") == []
    assert selected(long, "cpu and soak") == selected(long, "not (gpu or not soak)") == long


@pytest.mark.parametrize(
    ("lanes", "text"),
    [
        ([CPU], f"{TEST}:11: no lane of ci/lanes.toml takes {TEST}::test_first[connector/a@gpu] (marks H100, cards_1"),
        ([replace(CPU, environments=("vllm",)), CARD], f"{TEST}:11: no lane of ci/lanes.toml takes {TEST}::test_first[connector/a@cpu]"),
        ([CPU, replace(CPU, name="two"), CARD], f"lanes cpu and two both take {TEST}::test_first[connector/a@cpu] in environment own of"),
        ([CPU, CARD, replace(CPU, name="two", marks="cpu and tier")], "lane two: marks = 'cpu and tier' takes no test in any of its"),
        ([replace(CPU, environments=("own", "vllm")), CARD], "lane cpu: no test that it takes has an engine of environment vllm"),
        (
            [replace(CPU, options=("duplex/moshi:sdpa=math",)), CARD],
            "lane cpu: no test that it takes is of the engine of options 'duplex/moshi:sdpa=math'; take them out",
        ),
        ([replace(CPU, suites=("small", "large")), CARD], "lane cpu: no test that it takes is of suite large; take the suite out"),
        (
            [CPU, replace(CARD, suites=("small",))],
            f"{TEST}:11: lane card takes {TEST}::test_first[connector/a@gpu] of suite small-h100, and",
        ),
        (
            [CPU, replace(CARD, card_class="L4")],
            f"{TEST}:11: lane card takes {TEST}::test_first[connector/a@gpu], which needs a card of class",
        ),
        ([replace(CPU, marks="cpu or slow", suites=("small", "small-h100"))], "which needs cuda, and the lane's platform is cpu"),
        ([CPU, replace(CARD, marks="cpu or slow", schedules=("nightly",))], "which needs no card; it would hold one for nothing"),
        ([CPU, replace(CARD, marks="sloww")], "lane card: marks = 'sloww': unknown mark 'sloww'; nearest: slow"),
        ([CPU, replace(CARD, marks="slow or sloww")], "lane card: marks = 'slow or sloww': unknown mark 'sloww'"),
        ([CPU, replace(CARD, marks="slow and")], "lane card: marks = 'slow and': no mark expression: expected"),
    ],
)
def test_what_does_not_fit(items, lanes, text):
    """Tests without a lane or with two, lanes without a test, other hardware, other suites, marks that there are not."""
    assert [error for error in errors(items, *lanes) if text in error]


def test_a_lane_with_too_few_cards(items):
    """And one with more of a better class, which is fine."""
    wide = [replace(item, marks=item.marks - {"cards_1"} | {"cards_2"}) for item in items[2:]]
    (first, _) = errors(wide, CARD)

    assert first.endswith("which needs 2 cards, and the lane's jobs have 1")
    assert assign(wide, [replace(CARD, card_class="H200", cards=4)]) == {"card": {"own": wide}}


def test_all_that_does_not_fit_is_told(items):
    """Not only the first."""
    assert len(errors(items, replace(CPU, marks="soak"), replace(CARD, marks="cpu"))) == 8
