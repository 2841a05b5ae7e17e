"""What ci/lanes.toml says of suites, and of files that no lane needs."""

import pytest

from ci.lanes import LaneError, read_lanes, read_no_lane
from tests.ci.small_trees import LANES


def test_the_suites_of_a_lane(tmp_path):
    """And the files that none needs; none are named where the file is silent."""
    path = tmp_path / "lanes.toml"
    path.write_text(LANES)
    silent = read_no_lane(path)
    path.write_text(f'no_lane = ["a", "b/*"]\n{LANES}')

    assert [lane.suites for lane in read_lanes(path)] == [("small",), ("small-h100",)]
    assert (silent, read_no_lane(path)) == ((), ("a", "b/*"))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('suites = ["small"]', "", "lane 1 (small): write suites"),
        ('suites = ["small"]', "suites = []", "lane 1 (small): suites = []: write one or more, each once"),
        ('suites = ["small"]', 'suites = ["small", "small"]', "lane 1 (small): suites = ['small', 'small']: write one or more, each once"),
        ('suites = ["small"]', 'suites = "small"', "lane 1 (small): suites = 'small': write a list of texts"),
        (
            "minutes = 1",
            'minutes = 1\noptions = ["duplex/moshi"]',
            "lane 1 (small): options = 'duplex/moshi': write one engine with its options",
        ),
        ("minutes = 1", 'minutes = 1\noptions = ["duplex/mosh:sdpa=math"]', "lane 1 (small): options: unknown engine 'duplex/mosh'"),
        (
            "minutes = 1",
            'minutes = 1\noptions = ["duplex/moshi:sdp=math"]',
            "lane 1 (small): options: engine duplex/moshi: unknown option 'sdp'",
        ),
        ("minutes = 1", 'minutes = 1\noptions = ["duplex/*:sdpa=math"]', "lane 1 (small): options"),
        ('[[lane]]\nname = "small"', 'no_lan = ["a"]\n[[lane]]\nname = "small"', "write no_lane, and then each lane as a table [[lane]]"),
    ],
)
def test_a_wrong_file(tmp_path, old, new, text):
    """The error names the file, the lane and the key."""
    path = tmp_path / "lanes.toml"
    path.write_text(LANES.replace(old, new, 1))

    with pytest.raises(LaneError) as wrong:
        read_lanes(path)
    assert str(wrong.value).startswith(f"{path}: {text}")


@pytest.mark.parametrize("given", ['"a"', "[1]", '[""]'])
def test_files_that_no_lane_needs_are_texts(tmp_path, given):
    """Anything else is an error."""
    path = tmp_path / "lanes.toml"
    path.write_text(f"no_lane = {given}\n{LANES}")

    with pytest.raises(LaneError, match="write a list of texts"):
        read_no_lane(path)
