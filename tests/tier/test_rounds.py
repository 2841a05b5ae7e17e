"""The two rounds of the seeds: what may be counted with, and what a policy makes of them."""

import subprocess
import sys
from dataclasses import replace

import pytest

from harness.core.verdict import ClaimBroken
from harness.tier.protocol import Completion, Group, Outcome, Policy, TierHits
from harness.tier.rounds import Arm, Round, check, predicted
from harness.tier.workload import Workload

WORKLOAD = Workload()
GOOD = Completion(Outcome.FINISHED, "text", (1, 2, 3, 4), 2000, 0, TierHits(0, 0))


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({}, None),
        ({"prompt_tokens": 1900}, None),
        ({"prompt_tokens": 1899}, "PROMPT LENGTH"),
        ({"prompt_tokens": 2270}, None),
        ({"prompt_tokens": 2271}, "PROMPT LENGTH"),
        ({"cached_tokens": None}, "NOT COUNTED"),
        ({"outcome": Outcome.FAILED, "error": "out of memory"}, "REQUEST FAILED"),
    ],
)
def test_what_may_be_counted_with(changes, headline):
    if headline is None:
        check(0, replace(GOOD, **changes), WORKLOAD)
        return
    with pytest.raises(ClaimBroken) as broken:
        check(0, replace(GOOD, **changes), WORKLOAD)
    assert broken.value.headline == headline


def test_length_is_checked_under_python_minus_o():
    script = "from tests.tier.test_rounds import *\ncheck(0, replace(GOOD, prompt_tokens=1899), WORKLOAD)"
    told = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=False)

    assert "PROMPT LENGTH: got prompt 0 has 1899 tokens" in told.stderr


def test_sizing_is_the_seeds():
    """K = ceil(1.44 * capacity / (footprint * 2074))."""
    assert WORKLOAD.prompts(20_480, 2) == 8
    assert WORKLOAD.prompts(20_480, 1) == 15
    assert WORKLOAD.prompts(2 * 2074 * 100, 2) == 144


def arm(device_pages, host_pages):
    """Four prompts of 2000 tokens, twice."""
    round = Round((GOOD,) * 4)
    groups = (Group("sliding", 128), Group("full", None))
    return Arm(device_pages * 16, Policy(16, 512, device_pages, host_pages, groups, 2), round, round)


@pytest.mark.parametrize(
    ("device", "host", "second"),
    [
        (4 * 252, 0, TierHits(1536, 0)),
        (252, 0, TierHits(0, 0)),
        (252, 4 * 192, TierHits(0, 1536)),
        (252, 3 * 192, TierHits(0, 0)),
    ],
)
def test_prediction(device, host, second):
    """What fits is there again; asked in turn over less room than they take, prompts are found on a host that holds them all, or not."""
    hits = predicted(arm(device, host))

    assert hits[:4] == [TierHits(0, 0)] * 4
    assert hits[4:] == [second] * 4


def test_no_prediction_without_a_policy():
    with pytest.raises(ValueError, match="declares its policy"):
        predicted(replace(arm(1000, 0), policy=None))
