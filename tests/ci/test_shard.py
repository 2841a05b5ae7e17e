"""A lane's shards hold each of its tests once, and the longest is near what no split can beat."""

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.collect import collect
from ci.items import Item
from ci.lanes import ROOT
from ci.shard import jobs, main, shards, shares
from ci.timings import Timings, read_timings
from harness.core.partition import lower_bound
from tests.ci.small_trees import TEST, small_tree

NODEIDS = [f"{TEST}::test_{name}[connector/a@cpu]" for name in ("first", "second")]


@pytest.fixture(scope="module")
def lane():
    """What the lane of every pull request runs."""
    (share,) = shares("cpu", "own")
    return share.items


@pytest.fixture
def root(tmp_path):
    return small_tree(tmp_path).root


def held(split):
    return Counter(nodeid for shard in split for nodeid in shard.nodeids)


@pytest.mark.parametrize("n", [1, 2, 3, 16, 1000])
def test_each_item_is_in_one_shard(lane, n):
    split = shards(lane, read_timings(), n)

    assert [shard.index for shard in split] == list(range(1, n + 1))
    assert held(split) == Counter(item.nodeid for item in lane)


def test_a_shard_that_lacks_a_test_or_repeats_one_is_noticed(lane):
    first, *others = shards(lane, Timings(), 3)
    every = Counter(item.nodeid for item in lane)

    assert held([replace(first, nodeids=first.nodeids[1:]), *others]) != every
    assert held([first, first, *others]) != every


def test_a_shard_runs_in_the_order_of_the_lane(lane):
    order = [item.nodeid for item in lane]

    assert all(list(shard.nodeids) == [nodeid for nodeid in order if nodeid in set(shard.nodeids)] for shard in shards(lane, Timings(), 4))


def test_a_lane_runs_an_engine_with_its_options():
    """The tests of that engine are called after them, those of others are not."""
    (moshi,), (own,) = shares("soak-h100", "moshi"), shares("soak-h100", "own")

    assert {item.nodeid.partition("[")[2] for item in moshi.items} == {"duplex/moshi:sdpa=efficient@gpu]"}
    assert not any(":sdpa" in item.nodeid for item in own.items)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_the_committed_times_split_the_lane_within_five_percent(lane, n):
    timings = read_timings()
    (longest, *_) = shards(lane, timings, n)

    assert longest.seconds <= 1.05 * lower_bound(jobs(lane, timings), n)


@given(st.integers(1, 20_000), st.integers(1, 512), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=6, deadline=None)
def test_drawn_lanes_are_split_whole(number, n, engines, seed):
    draw = random.Random(seed)
    names = [f"connector/{at}" for at in range(engines)]
    items = [drawn_item(f"t{at}", draw.choice(names), draw.expovariate(1)) for at in range(number)]
    timings = Timings(boots={f"{name}@cpu": (draw.uniform(0, 30),) for name in names})
    split = shards(items, timings, n)

    assert held(split) == Counter(item.nodeid for item in items)
    assert split[0].seconds >= lower_bound(jobs(items, timings), n) - 1e-6


def drawn_item(nodeid, engine, seconds):
    return Item(nodeid, "", "", "connector", engine, "cpu", "", frozenset(), (), "", seconds, builds=False)


def test_measured_times_go_before_estimates(lane):
    timings = Timings({lane[0].nodeid: (1.0, 3.0, 50.0)}, {lane[0].boot: (4.0,), "another": (9.0,)})
    first, second = jobs(lane[:2], timings)

    assert (first.seconds, first.boot_seconds) == (3.0, 4.0)
    assert second.seconds == lane[1].seconds


def test_the_command_prints_tests_shards_and_the_bound(root, capsys):
    status = main(["--lane", "small", "--shards", "2"], root)
    lines = capsys.readouterr().out.splitlines()

    assert status == 0
    assert sorted(lines[:2]) == [f"small own {index}/2  {nodeid}" for index, nodeid in enumerate(NODEIDS, start=1)]
    assert lines[2:] == [
        "small own 1/2: 1 tests, about 2.0 s",
        "small own 2/2: 1 tests, about 2.0 s",
        "small own: 2 tests; longest shard 2.0 s, no split has less than 2.0 s",
    ]


def test_one_shard_is_written_as_node_ids(root, tmp_path):
    for index in (1, 2):
        main(["--lane", "small", "--shard", f"{index}/2", "-o", str(tmp_path / f"{index}.txt")], root)
    written = [(tmp_path / f"{index}.txt").read_text().splitlines() for index in (1, 2)]

    assert sorted(written) == [[nodeid] for nodeid in NODEIDS]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lane", "smal"], "unknown lane 'smal'; nearest: small"),
        (["--lane", "small", "--environment", "vllm"], "lane small: unknown environment 'vllm'; there are: own"),
        (["--lane", "small", "--shards", "0"], "'0': write a number of shards, 1 or more"),
        (["--lane", "small", "--shard", "3/2"], "'3/2': write I/N, the first of two as 1/2"),
        (["--lane", "small", "--shard", "1/2", "--shards", "2"], "leave --shards out"),
    ],
)
def test_what_there_is_not_is_named(root, capsys, arguments, said):
    status = exit_status(arguments, root)

    assert status == 2
    assert said in capsys.readouterr().err


def exit_status(arguments, root):
    try:
        return main(arguments, root)
    except SystemExit as left:
        return left.code


def test_a_shard_of_several_environments_needs_one(capsys):
    status = exit_status(["--lane", "engines", "--shard", "1/2"], ROOT)

    assert status == 2
    assert "name one with --environment: " in capsys.readouterr().err


def test_suites_that_do_not_collect_are_told(root, capsys):
    (root / TEST).write_text("def test_x(:\n")

    assert main(["--lane", "small"], root) == 1
    assert TEST in capsys.readouterr().err


@pytest.mark.parametrize("module", ["ci.run", "ci.shard", "ci.timings"])
def test_neither_torch_nor_suites_are_imported(module):
    code = f"import sys, {module}; print([name for name in ('torch', 'suites', 'fixtures', 'conftest') if name in sys.modules])"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_collected_items_have_unique_names():
    """What a partition asks of its jobs."""
    assert Counter(Counter(item.nodeid for item in collect()).values()).keys() == {1}
