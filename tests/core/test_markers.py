"""Marks: hardware to names, profiles to names, and what no lane knows."""

import pytest

import markers


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("card", ["L4", "H100", "H200"])
def test_hardware_marks(card, count):
    """Accelerator, platform, class, count; each a mark that pytest knows."""
    names = markers.hardware_mark_names(res={"cuda": card}, num_cards=count)

    assert names == ["gpu", "cuda", card, f"cards_{count}"]
    assert [m.name for m in markers.hardware_marks(res={"cuda": card}, num_cards=count)] == names
    assert set(names) <= set(markers.MARKS)


def test_one_card_is_the_default():
    """A test that says nothing of cards needs one."""
    assert markers.hardware_marks(res={"cuda": "H100"})[-1].name == "cards_1"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"res": {}}, "name exactly one platform"),
        ({"res": {"cuda": "H100", "rocm": "MI300"}}, "name exactly one platform"),
        ({"res": {"rocm": "H100"}}, "unknown platform 'rocm'; there are cuda"),
        ({"res": {"cuda": "A100"}}, "unknown card class 'A100'; there are L4, H100, H200"),
        ({"res": {"cuda": "H100"}, "num_cards": 3}, "num_cards=3; lanes have 1, 2, 4, 8"),
        ({"res": {"cuda": "H100"}, "num_cards": 0}, "num_cards=0; lanes have 1, 2, 4, 8"),
    ],
    ids=["none", "two", "platform", "class", "three cards", "no cards"],
)
def test_hardware_that_no_lane_knows(arguments, text):
    """Is an error that says what there is."""
    with pytest.raises(ValueError, match="hardware_marks") as wrong:
        markers.hardware_marks(**arguments)

    assert text in str(wrong.value)


def test_profile_marks():
    """A profile without a platform runs on a CPU; one with a platform is slow and needs its hardware."""
    assert markers.profile_mark_names("cpu", platform=None, card_class=None, num_cards=0) == ["cpu"]
    assert markers.profile_mark_names("gpu", platform="cuda", card_class="L4", num_cards=2) == ["slow", "gpu", "cuda", "L4", "cards_2"]


def test_a_platform_needs_a_card_class():
    """The error names the profile and the classes."""
    with pytest.raises(ValueError, match="profile gpu: platform cuda needs a card_class of L4, H100, H200"):
        markers.profile_mark_names("gpu", platform="cuda", card_class=None, num_cards=1)


GPU = {"kind": "transfer", "profile": "gpu", "platform": "cuda", "card_class": "H100", "num_cards": 1, "extra": ["full_model"]}
CPU = {"kind": "transfer", "profile": "cpu", "platform": None, "card_class": None, "num_cards": 0, "extra": ["core_model"]}


def test_marks_of_an_item():
    """Its own, the profile's hardware, the kind and the engine's, each once."""
    assert markers.item_mark_names(["soak"], **CPU) == ["soak", "cpu", "transfer", "core_model"]
    assert markers.item_mark_names([], **GPU) == ["slow", "gpu", "cuda", "H100", "cards_1", "transfer", "full_model"]


def test_hardware_of_a_test_stands_in_place_of_the_profiles():
    """A test for two cards has no mark that says one."""
    own = markers.hardware_mark_names(res={"cuda": "H200"}, num_cards=2)

    assert markers.item_mark_names(own, **GPU) == [*own, "slow", "transfer", "full_model"]


@pytest.mark.parametrize(
    ("own", "profile", "text"),
    [
        (["cuda"], GPU, "takes hardware_marks"),
        (["cuda", "H100", "cards_1", "cards_2"], GPU, "takes hardware_marks"),
        (["cuda", "H100", "cards_1"], CPU, "profile cpu is of no platform, and the test asks for cuda"),
    ],
    ids=["platform alone", "two counts", "another platform"],
)
def test_marks_of_no_item(own, profile, text):
    """Half a hardware, two of them, or a profile without it: no item has such marks."""
    with pytest.raises(ValueError, match=text):
        markers.item_mark_names(own, **profile)


def test_every_word_of_the_vocabulary_is_a_mark():
    """Kinds, platforms, classes and counts are marks, and each mark has a meaning."""
    counts = [f"cards_{n}" for n in markers.CARD_COUNTS]

    assert {*markers.KINDS, *markers.PLATFORMS, *markers.CARD_CLASSES, *counts} <= set(markers.MARKS)
    assert all(meaning.strip() for meaning in markers.MARKS.values())


def test_card_classes_are_those_of_the_machine():
    """What can be marked can be looked for."""
    from harness.core.devices import CARD_CLASSES

    assert set(markers.CARD_CLASSES) == set(CARD_CLASSES)


def test_registering_does_nothing():
    """The calls are there to be read."""
    assert markers.register_ci(est_time=1, suite="transfer") is None
    assert markers.register_cuda_ci(est_time=1, suite="transfer") is None
