"""A script is played as it is written: each sound on its conversation's own clock, pauses, short frames, and who is told what."""

import pytest
import torch

from harness.core.verdict import ClaimBroken
from harness.duplex.driver import play
from harness.duplex.protocol import Frame, Phase
from harness.duplex.script import Admit, Hear, Leave, Pause, Recycle, Script, Short
from harness.duplex.sounds import Noise, Silence, Tone
from tests.duplex.lockstep import build

RATE, SIZE = 24_000, 1920


class Ear:
    """A reference engine, and what it was given on each tick."""

    def __init__(self, **options):
        self.engine = build(**options)
        self.heard, self.how = [], []

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def step(self, pcm, **how):
        self.heard.append(pcm.clone())
        self.how.append(how)
        return self.engine.step(pcm, **how)

    def clock(self, slot, sound, tick):
        """Which frame of the sound the slot was given on a tick."""
        return next(n for n in range(100) if torch.equal(self.heard[tick][slot], sound.frame(n, RATE, SIZE)))


@pytest.fixture(scope="module")
def ear():
    return Ear(batch="2")


@pytest.fixture(autouse=True)
def emptied(ear):
    ear.heard.clear()
    ear.how.clear()


SCRIPT = Script(6, (Tone(0), Tone(1)))


def test_a_clock_counts_the_ticks_on_which_its_slot_is_heard(ear):
    play(ear, SCRIPT.at(2, Pause(0, 2)))

    assert [ear.clock(0, Tone(0), tick) for tick in range(6)] == [0, 1, 2, 2, 2, 3]
    assert [ear.clock(1, Tone(1), tick) for tick in range(6)] == [0, 1, 2, 3, 4, 5]
    assert [how.get("live") for how in ear.how] == [None, None, [False, True], [False, True], None, None]


def test_the_clock_of_an_occupant_begins_behind_its_prefill(ear):
    script = Script(25, SCRIPT.hears).at(3, Recycle(1, sound=Noise(4)))
    run = play(ear, script)
    first = next(tick for tick, frame in enumerate(run.of(1)) if tick >= 3 and frame.phase is Phase.WARMUP)

    assert [ear.clock(1, Noise(4), tick) for tick in (3, first, first + 1)] == [0, 0, 1]
    assert first == 3 + run.of(1).count(Frame(Phase.PREFILL, epoch=1))


def test_another_sound_goes_on_with_the_same_clock(ear):
    play(ear, SCRIPT.at(3, Hear(0, Noise(1))))

    assert ear.clock(0, Noise(1), 3) == 3


def test_a_slot_that_leaves_is_admitted_to(ear):
    run = play(ear, SCRIPT.at(1, Leave(1)).at(3, Admit(sound=Silence())))

    assert run.admitted == [1]
    assert [frame.phase for frame in run.of(1)][1:4] == [Phase.FREE, Phase.FREE, Phase.PREFILL]
    assert [frame.epoch for frame in run.of(1)][3:] == [1, 1, 1]


def test_a_short_frame_is_told_once(ear):
    play(ear, SCRIPT.at(2, Short(1, 700)))

    assert [how.get("valid_samples") for how in ear.how] == [None, None, [SIZE, 700], None, None, None]


def test_a_run_is_a_trace(ear):
    run = play(ear, SCRIPT)

    assert run["phase[tick 0, slot 1]"] is Phase.WARMUP
    assert torch.equal(run["audio[tick 3, slot 1]"], run.live(1)[2].audio)
    assert "audio[tick 0, slot 1]" not in run
    assert len(run) == len(dict(run))


def test_frames_are_kept_when_the_engine_uses_its_buffers_again():
    ear = Ear(batch="1")
    buffer = torch.zeros(SIZE)

    def step(pcm):
        buffer.add_(1)
        return [Frame(Phase.LIVE, buffer)]

    ear.step = step
    run = play(ear, Script(2, (Silence(),)))

    assert [float(frame.audio[0]) for frame in run.of(0)] == [1.0, 2.0]


def test_a_tick_without_a_frame_for_each_slot_is_a_finding():
    ear = Ear(batch="2")
    ear.step = lambda _: [Frame(Phase.LIVE)]

    with pytest.raises(ClaimBroken, match="step gave 1 frames"):
        play(ear, SCRIPT)


def test_a_script_for_other_slots_is_refused(ear):
    with pytest.raises(ValueError, match="sounds for 1 slots; the engine has 2"):
        play(ear, Script(1, (Silence(),)))
