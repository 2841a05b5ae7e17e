"""The embedded engine against its protocol: slots in lockstep, who is heard, and who is answered."""

import pytest
import torch

from harness.duplex.protocol import Phase, Session
from harness.duplex.reference.config import MAX_DELAY
from tests.duplex.lockstep import build, live, same, sound, talk

SILENCE = torch.zeros(4, 1920)


def phases(batch, slot, ticks, **step):
    """Of one slot while all hear their tones."""
    return [batch.step(sound(tick, tick, tick, tick), **step)[slot].phase for tick in range(ticks)]


def test_an_open_engine_is_past_its_prefill(untouched, shared):
    """The first ticks are the engine's delay, then one frame a tick."""
    for slot in range(4):
        ours = [given[slot] for given in untouched[: MAX_DELAY + 3]]
        assert [frame.phase for frame in ours] == [Phase.WARMUP] * MAX_DELAY + [Phase.LIVE] * 3
        assert [(frame.epoch, frame.seq) for frame in ours[MAX_DELAY:]] == [(0, 0), (0, 1), (0, 2)]
        assert all(frame.audio is None and frame.tokens is None for frame in ours[:MAX_DELAY])
        assert all(frame.audio.shape == (1920,) and frame.tokens.shape == (shared.streams,) for frame in ours[MAX_DELAY:])


def test_a_recycled_slot_is_prompted_then_heard(batch):
    session = Session(persona=batch.personas[-1])
    batch.recycle(2, session)
    seen = phases(batch, 2, batch.prefill_ticks(session) + MAX_DELAY + 1)

    assert seen == [Phase.PREFILL] * batch.prefill_ticks(session) + [Phase.WARMUP] * MAX_DELAY + [Phase.LIVE]


def test_recycling_in_prefill_begins_anew(batch):
    ticks = batch.prefill_ticks(Session())
    batch.recycle(1, Session())
    assert phases(batch, 1, ticks - 1) == [Phase.PREFILL] * (ticks - 1)

    batch.recycle(1, Session())
    assert phases(batch, 1, ticks + 1) == [Phase.PREFILL] * ticks + [Phase.WARMUP]


def test_a_recycle_is_not_heard_elsewhere(batch, untouched):
    touched = []
    for tick in range(8):
        if tick == 3:
            batch.recycle(1, Session(batch.personas[-1], batch.voices[-1], 5))
        touched.append(batch.step(sound(tick, tick, tick, tick)))

    for slot in (0, 2, 3):
        assert same(live(touched, slot), live(untouched, slot))
    assert [given[1].phase for given in touched[3:]] == [Phase.PREFILL] * 5


@pytest.mark.parametrize("late", range(3))
def test_a_session_is_the_same_whenever_it_joins(batch, untouched, late):
    """At every phase of the delay ring, after any predecessor, and as at boot."""
    for tick in range(4 + late):
        batch.step(sound(tick, tick, tick, tick))

    assert same(talk(batch, 1, Session(), 6), live(untouched[:6], 1))


def test_what_the_predecessor_left_would_be_heard(batch, monkeypatch):
    """The twin: rows that are not cleared."""
    clean = talk(batch, 1, Session(), 6)
    monkeypatch.setattr(batch.tick, "reset", lambda _rows: None)

    assert not same(talk(batch, 1, Session(), 6), clean)


def test_what_the_warm_up_left_would_be_heard(batch, untouched, monkeypatch):
    """The twin of a boot that leaves nothing: the wipe is left out."""
    monkeypatch.setattr(batch, "wipe", lambda: None)
    batch.open()
    frames = [batch.step(sound(tick, tick, tick, tick)) for tick in range(6)]

    assert not same(live(frames, 1), live(untouched[:6], 1))


def test_a_pause_is_as_if_the_tick_had_not_been(batch, untouched):
    paused = []
    for tick in range(6):
        if tick in (2, 4):
            assert batch.step(sound(9, 9, 9, 9), live=[True, True, False, True])[2].phase is Phase.PAUSED
        paused.append(batch.step(sound(tick, tick, tick, tick)))

    assert same(live(paused, 2), live(untouched[:6], 2))


def test_every_frame_of_input_is_answered_once(batch):
    """Then DRAINED once, and the slot is free."""
    before = phases(batch, 3, 5)
    batch.finish(3)
    rest = [batch.step(SILENCE)[3] for _ in range(MAX_DELAY + 2)]

    assert before.count(Phase.LIVE) + sum(frame.phase is Phase.LIVE for frame in rest) == 5
    assert [frame.phase for frame in rest] == [Phase.LIVE] * MAX_DELAY + [Phase.DRAINED, Phase.FREE]
    assert rest[0].seq == 4
    assert batch.usage()["slots"] == 3


@pytest.mark.parametrize("in_prefill", [False, True])
def test_input_that_ends_before_it_began_is_over_at_once(batch, in_prefill):
    if in_prefill:
        batch.recycle(0, Session())
        batch.step(SILENCE)
    batch.finish(0)

    assert [batch.step(SILENCE)[0].phase for _ in range(2)] == [Phase.DRAINED, Phase.FREE]
    assert batch.usage() == {"slots": 3, "streams": 3, "draws": 0, "failures": 0}


@pytest.mark.parametrize("leave", ["release", "cancel"])
def test_a_slot_that_is_left_is_free_and_silent(batch, leave):
    phases(batch, 1, 4)
    getattr(batch, leave)(1)
    assert batch.step(SILENCE)[1].phase is Phase.FREE

    assert batch.admit(Session()) == 1
    assert batch.step(SILENCE)[1].phase is Phase.PREFILL
    assert batch.step(SILENCE)[1].epoch == 1


def test_nobody_is_admitted_to_a_full_batch(batch):
    with pytest.raises(RuntimeError, match="4 slots"):
        batch.admit(Session())
    batch.release(2)

    assert batch.admit(Session(seed=3)) == 2
    assert batch.usage()["draws"] == 1


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_samples_that_are_not_finite_end_their_session_alone(batch, untouched, bad):
    frames = []
    for tick in range(5):
        pcm = sound(tick, tick, tick, tick)
        if tick == 2:
            pcm[1, 7] = bad
        frames.append(batch.step(pcm))

    assert [given[1].phase for given in frames] == [Phase.WARMUP, Phase.LIVE, Phase.FAILED, Phase.FREE, Phase.FREE]
    assert "sample 7" in frames[2][1].error
    for slot in (0, 2, 3):
        assert same(live(frames, slot), live(untouched[:5], slot))


def test_what_nobody_hears_may_be_anything(batch):
    """Padding, and the rows of slots that are paused, prompted or at their end."""
    pcm = sound(0, 0, 0, 0)
    batch.step(pcm)
    batch.finish(0)
    batch.recycle(1, Session())
    pcm[:3] = torch.nan
    pcm[3, 100:] = torch.nan
    frames = batch.step(pcm, live=[True, True, False, True], valid_samples=[1920, 1920, 1920, 100])

    assert [frame.phase for frame in frames] == [Phase.LIVE, Phase.PREFILL, Phase.PAUSED, Phase.LIVE]


def test_padding_is_silence(batch):
    """A short frame is that frame with zeros behind it; the twin hears the rest, and says something else."""

    def said(behind, valid):
        batch.open()
        frames = []
        for tick in range(6):
            pcm = sound(tick, tick, tick, tick)
            if tick == 1:
                pcm[0, 300:] = behind
            frames.append(batch.step(pcm, valid_samples=[valid if tick == 1 else 1920, 1920, 40, 1920])[0])
        return frames[MAX_DELAY:]

    silent = said(0.0, 1920)
    assert same(said(0.4, 300), silent)
    assert not same(said(0.4, 1920), silent)


def test_the_engine_does_not_change_or_keep_what_it_hears(batch):
    pcm = sound(0, 0, 0, 0)
    before = pcm.clone()
    batch.step(pcm, valid_samples=[100] * 4)
    assert torch.equal(pcm, before)

    pcm.fill_(torch.nan)
    assert torch.equal(batch.lab.one_pass(0), batch.lab.transcript(0))


def test_frames_belong_to_their_receiver(batch):
    """They may be changed, and later ticks change none of them."""
    batch.step(sound(0, 0, 0, 0))
    first = batch.step(sound(1, 1, 1, 1))[0]
    kept = first.audio.clone(), first.tokens.clone()
    second = batch.step(sound(2, 2, 2, 2))[0]
    assert torch.equal(first.audio, kept[0])
    assert torch.equal(first.tokens, kept[1])

    first.audio.fill_(0.5)
    first.tokens.fill_(0)
    assert not torch.equal(second.audio, first.audio)
    assert torch.equal(batch.lab.one_pass(0), batch.lab.transcript(0))


def test_a_seed_alone_makes_a_sessions_draws(batch):
    """Not its slot, nor its neighbours' seeds."""
    alone = talk(batch, 1, Session(seed=9), 6)
    batch.recycle(0, Session(seed=4))
    again = talk(batch, 1, Session(seed=9), 6)
    other = talk(batch, 1, Session(seed=10), 6)
    greedy = talk(batch, 1, Session(), 6)

    assert same(again, alone)
    assert not same(other, alone)
    assert not same(greedy, alone)


def test_a_greedy_session_behind_a_sampled_one_is_greedy(batch):
    greedy = talk(batch, 1, Session(), 6)
    talk(batch, 1, Session(seed=9), 2)

    assert same(talk(batch, 1, Session(), 6), greedy)


@pytest.mark.parametrize("slots", ["1", "9"])
def test_the_batch_size_moves_no_bit(untouched, slots):
    other = build(batch=slots)
    other.open()
    frames = [other.step(sound(*[tick] * int(slots))) for tick in range(5)]
    other.close()

    assert same(live(frames, 0), live(untouched[:5], 0))
