"""Parts come near the bound that no partition can beat, split a boot only where that pays, and do not depend on the order of the jobs."""

import math
import random
import time
from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.partition import LONGEST, STEP, Job, JobError, lower_bound, partition, seconds

BOOTS = {"": 0.0, "cheap": 0.0, "b1": 1.0, "b2": 2.5, "b3": 7.0}


def jobs_of(drawn, boots=BOOTS):
    return [Job(f"t{number}", length, boot, boots[boot]) for number, (length, boot) in enumerate(drawn)]


def some_jobs(longest, boots=BOOTS, **size):
    return st.lists(st.tuples(st.integers(0, longest), st.sampled_from(sorted(boots))), **size).map(lambda drawn: jobs_of(drawn, boots))


def optimum(jobs, parts):
    """The least that the longest part can take, by trying every partition."""
    numbered = product(range(parts), repeat=len(jobs))
    return min(max(seconds(j for j, at in zip(jobs, places, strict=True) if at == n) for n in range(parts)) for places in numbered)


def slack(jobs):
    """What the longest part may take above the lower bound, but for the step of the targets."""
    return max((j.seconds for j in jobs), default=0) + max((j.boot_seconds for j in jobs), default=0)


def makespan(filled):
    return max(map(seconds, filled))


@given(some_jobs(100, max_size=40), st.integers(1, 9))
def test_every_job_is_in_exactly_one_part(jobs, parts):
    filled = partition(jobs, parts)

    assert len(filled) == parts
    assert Counter(job for part in filled for job in part) == Counter(jobs)


@given(some_jobs(100, max_size=40), st.integers(1, 9), st.randoms(use_true_random=False))
def test_the_order_of_the_jobs_does_not_matter(jobs, parts, draw):
    shuffled = draw.sample(jobs, len(jobs))

    assert partition(shuffled, parts) == partition(jobs, parts)


@given(some_jobs(9, max_size=6), st.integers(1, 3))
@settings(deadline=None)
def test_the_best_partition_lies_between_the_bound_and_ours(jobs, parts):
    best = optimum(jobs, parts)

    assert lower_bound(jobs, parts) <= best + 1e-6
    assert best <= makespan(partition(jobs, parts)) + 1e-6


@given(some_jobs(9, {"": 0.0, "cheap": 0.0}, min_size=1, max_size=6), st.integers(1, 3))
@settings(deadline=None)
def test_without_boots_the_longest_part_is_within_grahams_bound_of_the_best(jobs, parts):
    best = optimum(jobs, parts)

    assert makespan(partition(jobs, parts)) <= best * (4 / 3 - 1 / (3 * parts)) + 1e-6


@given(some_jobs(1000, max_size=60), st.integers(1, 20))
def test_the_longest_part_takes_at_most_the_bound_a_job_and_a_boot(jobs, parts):
    bound = lower_bound(jobs, parts)

    assert makespan(partition(jobs, parts)) <= bound * (1 + 1 / STEP) + slack(jobs) + 1e-6


@given(st.sampled_from([1, 2, 7, 64, 512]), st.integers(1, 7200), st.sampled_from([0, 1, 6, 300]), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_short_jobs_come_within_five_percent(parts, number, boots, seed):
    jobs = short_jobs(parts, number, boots, random.Random(seed))
    bound = lower_bound(jobs, parts)

    assert len(jobs) <= 20_000
    assert slack(jobs) <= 0.05 * bound
    assert makespan(partition(jobs, parts)) <= bound * (1.05 + 1 / STEP)


def short_jobs(parts, number, boots, draw):
    """Jobs of hundredths to thirty seconds, cut to at most 4 % of a part's share, 25 a part more at most; no boot is longer than 1 %."""
    lengths = [draw.choice([0.05, 1, 30]) * draw.random() for _ in range(number)]
    longest = 0.04 * sum(lengths) / parts
    pieces = [length / count for length in lengths for count in [math.ceil(length / longest)] for _ in range(count)]
    costs = {"": 0.0} | {f"b{n}": draw.uniform(0, longest / 4) for n in range(boots)}
    return jobs_of([(piece, draw.choice(list(costs))) for piece in pieces], costs)


@given(some_jobs(30, min_size=1, max_size=30), st.integers(1, 6))
def test_a_boot_is_split_only_where_that_makes_the_longest_part_shorter(jobs, parts):
    filled = partition(jobs, parts)
    units = [Job(f"{name}", seconds(own)) for name, own in together(jobs).items()]
    split = [boot for boot, homes in homes_of(filled).items() if len(homes) > 1]

    assert not split or makespan(filled) < makespan(partition(units, parts))
    for boot in split:
        for one, other in combinations(homes_of(filled)[boot], 2):
            moved = [job for job in filled[one] if job.boot == boot]

            assert seconds([*filled[other], *moved]) > makespan(filled)


def together(jobs):
    """The jobs that share a boot that costs something; each other job alone."""
    groups = {}
    for job in jobs:
        groups.setdefault(job.boot if job.boot_seconds else job.name, []).append(job)
    return groups


def homes_of(filled):
    """The parts that each boot with a cost is paid in."""
    homes = {}
    for number, part in enumerate(filled):
        for boot in sorted({job.boot for job in part if job.boot and job.boot_seconds}):
            homes.setdefault(boot, []).append(number)
    return homes


def test_a_boot_stays_whole_where_a_split_does_not_pay():
    jobs = [Job("a", 4, "x", 5), Job("b", 4, "x", 5), Job("c", 9)]

    assert partition(jobs, 2) == [[jobs[0], jobs[1]], [jobs[2]]]
    assert homes_of(partition([*jobs, Job("d", 9, "x", 5)], 2)) == {"x": [0, 1]}


def test_a_boot_stays_whole_where_a_split_makes_nothing_shorter():
    """Longest first, all whole, takes 20 s; so does the best that was found with the boot in both parts."""
    jobs = [Job("a", 7), Job("b", 8), Job("c", 5), Job("d", 2, "x", 1), Job("e", 5), Job("f", 9), Job("g", 2, "x", 1)]
    filled = partition(jobs, 2)

    assert makespan(filled) == 20
    assert len(homes_of(filled)["x"]) == 1


def test_a_boot_that_costs_nothing_is_split_freely():
    jobs = [Job(name, 1, "x") for name in "abcd"]

    assert [len(part) for part in partition(jobs, 4)] == [1, 1, 1, 1]


def test_jobs_without_a_boot_share_with_nobody():
    jobs = [Job("a", 1, "", 2), Job("b", 1, "", 2)]

    assert seconds(jobs) == 6
    assert seconds([Job("a", 1, "x", 2), Job("b", 1, "x", 2)]) == 4


@pytest.mark.parametrize(
    ("jobs", "parts", "bound"),
    [
        ([Job(str(n), 1) for n in range(10)], 4, 3),  # three in one part, of ten in four
        ([Job(str(n), 1) for n in range(5)], 4, 2),  # two in one part, of five in four
        ([Job(str(n), 1, "x", 10) for n in range(100)], 10, 20),  # the boot in every part
        ([Job("a", 9, "x", 3), Job("b", 1)], 5, 12),  # the longest job with its boot
        ([Job("a", 1), Job("b", 2)], 1, 3),
        ([], 3, 0),
    ],
)
def test_the_bound_counts_what_no_partition_can_avoid(jobs, parts, bound):
    assert lower_bound(jobs, parts) == bound
    assert makespan(partition(jobs, parts)) == bound


def test_more_parts_than_jobs_leaves_some_empty_and_the_longest_part_is_first():
    jobs = [Job("b", 1), Job("a", 1), Job("c", 0)]

    assert partition(jobs, 4) == [[jobs[1]], [jobs[0]], [jobs[2]], []]


@pytest.mark.parametrize(
    ("jobs", "parts", "said"),
    [
        ([], 0, "0 parts: give 1 or more"),
        ([Job("a", -1)], 1, "a: seconds = -1"),
        ([Job("a", math.nan)], 1, "a: seconds = nan"),
        ([Job("a", math.inf)], 1, "a: seconds = inf"),
        ([Job("a", 2 * LONGEST)], 1, "a: seconds = "),
        ([Job("a", 1, "x", -1)], 1, "a: boot_seconds = -1"),
        ([Job("a", 1, "x", 1), Job("b", 1, "x", 2)], 1, "b: boot x takes 2 s, and 1 s for a"),
        ([Job("a", 1), Job("a", 2)], 1, "a: two jobs have this name"),
    ],
)
@pytest.mark.parametrize("asked", [partition, lower_bound])
def test_what_cannot_be_is_named(asked, jobs, parts, said):
    with pytest.raises(JobError, match=said):
        asked(jobs, parts)


def test_twenty_thousand_jobs_go_into_512_parts_in_seconds():
    """Every job tried in every part would be ten million steps a target; this is about twenty thousand."""
    jobs = [Job(f"t{n}", 1 + n % 97 / 10, f"b{n % 6}", 10.0) for n in range(20_000)]
    started = time.process_time()
    filled = partition(jobs, 512)
    spent = time.process_time() - started

    assert makespan(filled) <= 1.05 * lower_bound(jobs, 512)
    assert spent < 10
