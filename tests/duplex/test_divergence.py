"""Where two runs diverge, as figures: which ticks of which slots, and by how much."""

import math

import pytest
import torch

from fixtures import duplex_divergence
from fixtures.duplex import Stage
from harness.core.judge import Judge
from harness.core.verdict import ClaimBroken, Inconclusive
from harness.duplex.driver import Played
from harness.duplex.protocol import Frame, Phase
from harness.duplex.script import Script
from harness.duplex.sounds import Silence

SCRIPT = Script(3, (Silence(), Silence()))


def frame(sample=0.0, token=1, **fields):
    return Frame(Phase.LIVE, audio=torch.tensor([0.0, sample]), tokens=torch.tensor([token]), **fields)


def played(*ticks):
    run = Played(SCRIPT)
    for frames in ticks:
        run.add(frames)
    return run


SAME = played(*[[frame(), frame()]] * 3)


def recorded(got, expected=SAME, slots=(0, 1), **more):
    judge = Judge()
    duplex_divergence.record(judge, got, expected, slots, **more)
    return {figure.name: figure for figure in judge.figures}


def test_each_slot_has_its_ticks_and_the_log_of_its_largest_difference():
    got = played([frame(), frame()], [frame(), frame(0.25)], [frame(), frame(-0.5)])
    figures = recorded(got)

    assert figures["ticks compared"].value == 3
    assert [figures[f"divergent ticks of slot {slot}"].value for slot in (0, 1)] == [0, 2]
    assert figures["divergent ticks of slot 1"].series.points == ((1.0, -2.0), (2.0, -1.0))
    assert figures["divergent ticks of slot 0"].series.points == ()


@pytest.mark.parametrize(
    "other", [frame(token=2), frame(text="a"), frame(epoch=1), frame(math.nan), Frame(Phase.PAUSED), frame(error="x"), frame(math.inf)]
)
def test_a_difference_that_is_no_number(other):
    """The tick is there, and its size is not."""
    assert recorded(played([other, frame()]))["divergent ticks of slot 0"].series.points == ((0.0, None),)


def test_slots_that_are_not_compared_and_ticks_before_are_left_out():
    got = played([frame(0.5), frame(0.5)], [frame(), frame(0.5)], [frame(), frame()])

    assert set(recorded(got, slots=[1], since=1)) == {"ticks compared", "divergent ticks of slot 1"}
    assert recorded(got, slots=[1], since=1)["divergent ticks of slot 1"].series.points == ((1.0, -1.0),)


class Engine:
    slots = 2


def stage(judge):
    return Stage(Engine(), judge, None, None)


def test_a_broken_claim_leaves_them_behind():
    judge = Judge()
    with pytest.raises(ClaimBroken):
        stage(judge).same(played([frame(), frame(0.5)], [frame(), frame()], [frame(), frame()]), SAME, iter([0, 1]))

    assert [figure.value for figure in judge.figures] == [3, 0, 1]


def test_a_claim_that_holds_leaves_none():
    judge = Judge()
    stage(judge).same(SAME, SAME, [0, 1])

    assert judge.figures == []


def test_an_engine_that_does_not_repeat_itself_leaves_them_behind(monkeypatch):
    """From the two A runs, of all slots."""
    runs = iter([SAME, SAME, played([frame(), frame()], [frame(0.5), frame()], [frame(), frame()])])
    monkeypatch.setattr(Stage, "play", lambda *_: next(runs))
    judge = Judge()
    with pytest.raises(Inconclusive):
        stage(judge).controlled(SCRIPT, SCRIPT.at(1))

    assert judge.figures[1].series.points == ((1.0, -1.0),)
    assert judge.control == "A, B, A: the two A runs differ"
