"""What the duplex suites compare with: each way in which two runs can differ is found, and a stimulus that shows nowhere too."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from fixtures.duplex import Stage
from harness.core.judge import Judge
from harness.core.verdict import ClaimBroken, Inconclusive, Vacuous
from harness.duplex.driver import Played
from harness.duplex.protocol import Frame, Phase
from harness.duplex.script import Recycle, Script
from harness.duplex.sounds import Silence
from harness.duplex.workload import Workload

SCRIPT = Script(2, (Silence(), Silence()))
FRAME = Frame(Phase.LIVE, torch.tensor([0.5, -0.25]), "word", torch.tensor([3, 4]), epoch=1, seq=7)


def stage(engine=None):
    return Stage(engine, Judge(), Workload(), None)


def played(last=FRAME, script=SCRIPT):
    """Two ticks of two slots; `last` is what slot 1 gave at last."""
    run = Played(script)
    run.add([FRAME, FRAME])
    run.add([FRAME, last])
    return run


OTHERS = {
    "a bit of audio": replace(FRAME, audio=torch.nextafter(FRAME.audio, torch.ones(2))),
    "no audio": replace(FRAME, audio=None),
    "audio that is not finite": replace(FRAME, audio=FRAME.audio / 0),
    "a token": replace(FRAME, tokens=FRAME.tokens + 1),
    "tokens of another type": replace(FRAME, tokens=FRAME.tokens.int()),
    "text": replace(FRAME, text=None),
    "the phase": replace(FRAME, phase=Phase.WARMUP),
    "the occupant": replace(FRAME, epoch=2),
    "the count": replace(FRAME, seq=8),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_difference_is_found_where_it_is(other):
    with pytest.raises(ClaimBroken, match=r"tick 1, slot 1") as broken:
        stage().same(played(other), played(), [0, 1])

    assert "ticks 0 to 0 identical" in broken.value.extent
    stage().same(played(other), played(), [0])


def test_runs_are_compared_as_far_as_both_go():
    longer = played()
    longer.add([FRAME, OTHERS["text"]])

    stage().same(longer, played(), [0, 1])
    stage().same(played(), longer, [0, 1])


def test_sessions_differ_in_length_and_content_but_not_by_their_occupant():
    one = [FRAME, FRAME]

    stage().same_session([replace(FRAME, epoch=5)] * 2, one, "slot 1", source="slot 0")
    for other in ([FRAME], [FRAME] * 3, [FRAME, OTHERS["a bit of audio"]]):
        with pytest.raises(ClaimBroken, match="slot 1"):
            stage().same_session(other, one, "slot 1", source="slot 0")


def test_a_stimulus_that_shows_nowhere_proves_nothing():
    with pytest.raises(Vacuous, match="STIMULUS INVISIBLE"):
        stage().differs(played(), played(), 1)
    with pytest.raises(Vacuous, match="PATH NOT TAKEN"):
        stage().differs(played(), replaced_audio(), 1)

    stage().differs(played(OTHERS["a bit of audio"]), played(), 1)


def replaced_audio():
    """A run in which slot 1 gave no audio at all."""
    run = Played(SCRIPT)
    for _ in range(2):
        run.add([FRAME, replace(FRAME, audio=None)])
    return run


class Given(Stage):
    """A stage whose runs are given, in the order in which they are played."""

    runs: list

    def play(self, script):
        return self.runs.pop(0)


def test_an_engine_that_does_not_repeat_itself_judges_nothing():
    """And its record says where the two runs differ."""
    given = Given(SimpleNamespace(slots=2), Judge(), Workload(), None)
    given.runs = [played(), played(), played(OTHERS["a token"])]

    with pytest.raises(Inconclusive, match="CONTROL DIFFERS"):
        given.controlled(SCRIPT, SCRIPT.at(0, Recycle(1)))
    found = {figure.name: figure.value for figure in given.judge.figures}
    assert (found["divergent ticks of slot 0"], found["divergent ticks of slot 1"]) == (0, 1)


def test_one_experiment_is_run_once():
    given = Given(None, Judge(), Workload(), None)
    touched = SCRIPT.at(0, Recycle(1))
    given.runs = [played(), played(OTHERS["a token"], touched), played()]
    first = given.controlled(SCRIPT, touched)
    given.judge.control = ""

    assert given.controlled(SCRIPT, touched) == first
    assert "A, B, A" in given.judge.control
    given.arm = "built 1"
    with pytest.raises(IndexError):
        given.controlled(SCRIPT, touched)
