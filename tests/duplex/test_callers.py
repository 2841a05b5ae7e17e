"""What callers bring: sounds that are cut, buffers that are overwritten, questions one after the other."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fixtures.duplex_dialogue import SHIPPED, VARIABLE, conversations, question
from harness.duplex.protocol import Dialogue, Session
from harness.duplex.script import Recycle
from harness.duplex.sounds import Noise, Recording, Silence, Spliced
from harness.duplex.wires import OverwritingEngine
from harness.duplex.workload import Workload

RATE, SIZE, PREFILL = 24_000, 1920, 5


def test_spliced():
    """The other sound is heard behind the cut, in that frame alone."""
    sound = Spliced(Silence(), at=2, end=700, behind=Noise(3))
    frames = [sound.frame(tick, RATE, SIZE) for tick in range(4)]

    assert [bool(frame.any()) for frame in frames] == [False, False, True, False]
    assert not frames[2][:700].any()
    assert torch.equal(frames[2][700:], Noise(3).frame(2, RATE, SIZE)[700:])


class Echo:
    """Gives what it was given on the tick before: its own copy, or the caller's buffer, which is not its own."""

    def __init__(self, keeps):
        self.keeps, self.held = keeps, None

    def step(self, pcm):
        before = None if self.held is None else self.held.clone()
        self.held = pcm if self.keeps else pcm.clone()
        return before


@pytest.mark.parametrize("keeps", [False, True])
def test_overwritten(keeps):
    """Whoever reads a caller's buffer after the step hears something else."""
    careless = OverwritingEngine(Echo(keeps))
    careless.step(torch.full((1, 4), 0.25))
    heard = careless.step(torch.zeros(1, 4))

    assert torch.equal(heard, torch.full((1, 4), 0.25)) is not keeps
    assert [torch.equal(given, left) for given, left in careless.buffers] == [True, True]


def stage(dialogues=(), slots=2, **constants):
    """As much of a stage as questions are asked on."""
    engine = SimpleNamespace(slots=slots, sample_rate=RATE, frame_size=SIZE, dialogues=dialogues, prefill_ticks=lambda _: PREFILL)
    return SimpleNamespace(engine=engine, workload=Workload(**constants))


UNANSWERED, ANSWERED = Dialogue(Path("noise.wav"), None, ""), Dialogue(Path("known.wav"), None, "yes")


def test_question(monkeypatch):
    """By the option, by the variable, by the engine, or what ships."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert question(stage()) == Recording(SHIPPED)
    assert question(stage([UNANSWERED, ANSWERED])) == Recording(Path("known.wav"))
    monkeypatch.setenv(VARIABLE, "theirs.wav")
    assert question(stage([ANSWERED])) == Recording(Path("theirs.wav"))
    assert question(stage([ANSWERED], question="mine.wav")) == Recording(Path("mine.wav"))


def test_conversations():
    """Each dialogue has its slot for as long as its prefill, question and answer take, and then the next one has it."""
    dialogues = [Dialogue(SHIPPED, f"persona {number}", "yes") for number in range(5)]
    script, asked = conversations(stage(known_ticks=4), dialogues)
    length = PREFILL + Recording(SHIPPED).ticks(RATE, SIZE) + 4

    assert [(one.slot, one.epoch) for one in asked] == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]
    assert script.ticks == 3 * length
    assert [tick // length for tick, _ in script.events] == [0, 0, 1, 1, 2]
    assert all(tick % length == 0 for tick, _ in script.events)
    assert script.events[2][1] == Recycle(0, Session(persona="persona 2"), Recording(SHIPPED))
