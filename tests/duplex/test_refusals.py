"""What the embedded engine refuses: the error names it, and nobody notices."""

import pytest
import torch

from harness.duplex.protocol import Session
from harness.duplex.reference.weights import Unavailable
from tests.duplex.lockstep import build, live, same, sound

SILENCE = torch.zeros(4, 1920)
REFUSED = [
    ("slot 4", lambda batch: batch.recycle(4, Session())),
    ("slot -1", lambda batch: batch.recycle(-1, Session())),
    ("slot True", lambda batch: batch.recycle(True, Session())),
    ("moon", lambda batch: batch.recycle(1, Session("moon"))),
    ("voice", lambda batch: batch.recycle(1, Session(voice="x"))),
    ("seed", lambda batch: batch.recycle(1, Session(seed=-1))),
    ("pcm", lambda batch: batch.step(torch.zeros(4, 1919))),
    ("pcm", lambda batch: batch.step(torch.zeros(3, 1920))),
    ("pcm", lambda batch: batch.step(torch.zeros(4, 1920, dtype=torch.float64))),
    ("pcm", lambda batch: batch.step([[0.0] * 1920] * 4)),
    ("live", lambda batch: batch.step(SILENCE, live=[True] * 3)),
    ("live", lambda batch: batch.step(SILENCE, live=[1, 1, 1, 1])),
    ("valid_samples", lambda batch: batch.step(SILENCE, valid_samples=[1920] * 5)),
    ("valid_samples", lambda batch: batch.step(SILENCE, valid_samples=[1920, 1920, 1921, 0])),
    ("valid_samples", lambda batch: batch.step(SILENCE, valid_samples=[1920, 1920, -1, 0])),
]
"""What the error names, and the call."""


@pytest.mark.parametrize(("names", "call"), REFUSED)
def test_a_call_that_is_refused_says_why(shared, names, call):
    with pytest.raises(ValueError, match=names):
        call(shared)


def heard(batch, before):
    """The LIVE frames of every slot in five ticks, with `before(batch)` before each."""
    frames = []
    for tick in range(5):
        before(batch)
        frames.append(batch.step(sound(tick, tick, tick, tick)))
    return [live(frames, slot) for slot in range(4)]


def refused(batch):
    for names, call in REFUSED:
        with pytest.raises(ValueError, match=names):
            call(batch)


def test_a_call_that_is_refused_moves_nobody(batch, untouched):
    """All of them before every tick."""
    assert all(map(same, heard(batch, refused), [live(untouched[:5], slot) for slot in range(4)]))


def test_a_call_that_moves_somebody_is_noticed(batch, untouched):
    """The twin: a recycle that is taken, before every tick."""
    moved = heard(batch, lambda batch: batch.recycle(1, Session()))

    assert [same(ours, live(untouched[:5], slot)) for slot, ours in enumerate(moved)] == [True, False, True, True]


def test_an_engine_that_is_not_open_does_nothing():
    engine = build()
    for call in (lambda: engine.step(SILENCE), lambda: engine.admit(Session()), lambda: engine.finish(0), engine.lab.compact):
        with pytest.raises(RuntimeError, match="open"):
            call()
    engine.open()
    engine.close()
    engine.close()
    for call in (lambda: engine.step(SILENCE), lambda: engine.recycle(0, Session()), engine.open, engine.lab.poison_free):
        with pytest.raises(RuntimeError, match="close"):
            call()
    assert set(engine.usage().values()) == {0}


@pytest.mark.parametrize(
    ("option", "value"),
    [("size", "8b"), ("batch", "0"), ("batch", "four"), ("sdpa", "fast"), ("dtype", "float16"), ("graphs", "maybe"), ("speed", "1")],
)
def test_a_wrong_option_is_named(option, value):
    with pytest.raises(ValueError, match=option):
        build(**{option: value})


def test_graphs_need_a_card():
    with pytest.raises(Unavailable, match="graphs"):
        build(graphs="on")
