"""The model of the slots: what it owes, and that it takes nothing else."""

import math
from types import SimpleNamespace

import pytest
import torch

from fixtures.duplex_owed import check_phases, check_tick
from harness.core.judge import Judge
from harness.core.verdict import ClaimBroken
from harness.duplex.driver import Played
from harness.duplex.model import BatchModel, Owed
from harness.duplex.protocol import Frame, Phase
from harness.duplex.script import Admit, Hear, Leave, Pause, Recycle, Script
from harness.duplex.sounds import Silence, Spoiled

PREFILL = 2
LETTERS = {
    Phase.PREFILL: "p",
    Phase.WARMUP: "w",
    Phase.LIVE: "L",
    Phase.PAUSED: "-",
    Phase.DRAINED: "D",
    Phase.FAILED: "F",
    Phase.FREE: ".",
}


def owed(ticks, *events, delay=1, slots=1):
    """What the first slot owes, a letter a tick; `events` are pairs of a tick and an event."""
    model = BatchModel(delay, lambda session: PREFILL, (Silence(),) * slots)
    letters = ""
    for tick in range(ticks):
        for when, event in events:
            if when == tick:
                model.do(event, admitted=0)
        letters += LETTERS[model.tick()[0].phase]
    return letters


FINISH, CANCEL, RELEASE = (Leave(0, how) for how in ("finish", "cancel", "release"))


@pytest.mark.parametrize(
    ("delay", "events", "letters"),
    [
        (1, [], "wLLLLL"),
        (0, [], "LLLLLL"),
        (2, [], "wwLLLL"),
        (1, [(2, Recycle(0))], "wLppwL"),
        (1, [(2, Recycle(0)), (3, Recycle(0))], "wLpppw"),
        (1, [(0, FINISH)], "D....."),
        (1, [(1, FINISH)], "wLD..."),
        (1, [(3, FINISH)], "wLLLD."),
        (2, [(1, FINISH)], "wwLD.."),
        (0, [(2, FINISH)], "LLD..."),
        (1, [(1, Recycle(0)), (2, FINISH)], "wpD..."),
        (1, [(2, CANCEL)], "wL...."),
        (1, [(2, CANCEL), (3, Admit())], "wL.ppw"),
        (1, [(2, RELEASE), (2, Recycle(0))], "wLppwL"),
        (1, [(2, FINISH), (2, Recycle(0))], "wLppwL"),
        (1, [(1, Pause(0, 2))], "w--LLL"),
        (1, [(1, FINISH), (1, Pause(0, 2))], "w--LD."),
        (1, [(1, Recycle(0)), (2, Pause(0, 1))], "wp-pwL"),
        (1, [(2, Hear(0, Spoiled(Silence(), 2, math.nan)))], "wLF..."),
        (1, [(2, Hear(0, Spoiled(Silence(), 2, 0.5)))], "wLLLLL"),
        (1, [(1, Recycle(0, sound=Spoiled(Silence(), 0, math.inf)))], "wppF.."),
        (1, [(2, Hear(0, Spoiled(Silence(), 2, math.nan))), (2, Pause(0, 1))], "wL-F.."),
        (1, [(2, Hear(0, Spoiled(Silence(), 2, math.nan))), (2, FINISH)], "wLLD.."),
    ],
)
def test_phases(delay, events, letters):
    """What each event makes of the ticks after it."""
    assert owed(6, *events, delay=delay) == letters


def test_counts():
    """Frames are counted from 0 for each occupant, and the occupants of the slot from 0 on."""
    model = BatchModel(1, lambda session: 0, (Silence(), Silence()))
    first = [str(model.tick()[1]) for _ in range(3)]
    model.do(Recycle(1))
    then = [str(model.tick()[1]) for _ in range(2)]

    assert first == ["warmup, epoch 0", "live, epoch 0, seq 0", "live, epoch 0, seq 1"]
    assert then == ["warmup, epoch 1", "live, epoch 1, seq 0"]
    assert str(model.tick()[0]) == "live, epoch 0, seq 4"
    assert model.free == []


AUDIO, TOKENS = torch.zeros(4), torch.zeros(3, dtype=torch.int64)
RIGHT = Frame(Phase.LIVE, AUDIO, "word", TOKENS, epoch=2, seq=5)


def judged(frame, due=Owed(Phase.LIVE, 2, 5), streams=3):
    check_tick(Judge(), [frame], [due], "", streams)


def test_right_frames():
    """Frames that say what is owed are taken; of a free slot nothing but its phase is looked at."""
    judged(RIGHT)
    judged(Frame(Phase.LIVE, AUDIO, epoch=2, seq=5), streams=0)
    judged(Frame(Phase.PREFILL, epoch=1, seq=9), Owed(Phase.PREFILL, 1))
    judged(Frame(Phase.FREE, epoch=9), Owed(Phase.FREE))


@pytest.mark.parametrize(
    ("frame", "due"),
    [
        (Frame(Phase.LIVE, AUDIO, "word", TOKENS, epoch=1, seq=5), Owed(Phase.LIVE, 2, 5)),
        (Frame(Phase.LIVE, AUDIO, "word", TOKENS, epoch=2, seq=4), Owed(Phase.LIVE, 2, 5)),
        (Frame(Phase.WARMUP, epoch=2), Owed(Phase.LIVE, 2, 5)),
        (Frame(Phase.LIVE, None, "word", TOKENS, epoch=2, seq=5), Owed(Phase.LIVE, 2, 5)),
        (Frame(Phase.LIVE, AUDIO, "word", None, epoch=2, seq=5), Owed(Phase.LIVE, 2, 5)),
        (Frame(Phase.PREFILL, AUDIO, epoch=1), Owed(Phase.PREFILL, 1)),
        (Frame(Phase.PREFILL, tokens=TOKENS, epoch=1), Owed(Phase.PREFILL, 1)),
        (Frame(Phase.WARMUP, text="word", epoch=1), Owed(Phase.WARMUP, 1)),
        (Frame(Phase.WARMUP, epoch=0), Owed(Phase.WARMUP, 1)),
        (Frame(Phase.FREE, AUDIO), Owed(Phase.FREE)),
    ],
)
def test_wrong_frames(frame, due):
    """Another phase, occupant or number, and what is given where nothing is owed, or not given where it is, is found."""
    with pytest.raises(ClaimBroken):
        judged(frame, due)


def test_too_few_frames():
    """A slot that gives no frame is found."""
    with pytest.raises(ClaimBroken, match="frames"):
        check_tick(Judge(), [], [Owed(Phase.FREE)], "", 3)


def stage_and_run(*frames):
    """A run of one slot without a delay, which is recycled at tick 1."""
    engine = SimpleNamespace(delay=0, streams=0, prefill_ticks=lambda session: 0)
    played = Played(Script(len(frames), (Silence(),)).at(1, Recycle(0)))
    for frame in frames:
        played.add([frame])
    return SimpleNamespace(engine=engine, judge=Judge()), played


def test_script_followed():
    """A whole run is held to its script."""
    first, then = Frame(Phase.LIVE, AUDIO), Frame(Phase.LIVE, AUDIO, epoch=1)
    check_phases(*stage_and_run(first, then))

    with pytest.raises(ClaimBroken, match="tick 1, slot 0"):
        check_phases(*stage_and_run(first, Frame(Phase.LIVE, AUDIO, seq=1)))
