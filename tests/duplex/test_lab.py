"""The reference engine's lab."""

import pytest
import torch

from harness.duplex.protocol import Phase, Session
from tests.duplex.lockstep import live, same, sound, talk


def heard(batch, touch=lambda: None):
    """The LIVE frames of slots 2 and 3 once slot 0 is free, with something done to the engine half-way."""
    batch.release(0)
    frames = []
    for tick in range(8):
        if tick == 4:
            touch()
        frames.append(batch.step(sound(*[tick] * 4)))
    return [live(frames, slot) for slot in (2, 3)]


@pytest.fixture(scope="module")
def still(shared):
    """With nothing done to it."""
    shared.open()
    return heard(shared)


def test_sessions_do_not_notice_that_their_rows_move(batch, still):
    rows = list(batch.occupancy.table.row_of)
    moved = heard(batch, batch.lab.compact)

    assert batch.occupancy.table.row_of != rows
    assert all(map(same, moved, still))


def test_a_row_that_moves_without_its_state_is_noticed(batch, still, monkeypatch):
    """The twin: the table moves, the tensors do not."""
    monkeypatch.setattr(batch.tick, "move", lambda _order: None)

    assert not any(map(same, heard(batch, batch.lab.compact), still))


def test_draws_move_with_their_session(batch):
    batch.release(0)
    still = talk(batch, 3, Session(seed=7), 8)
    batch.open()
    batch.release(0)
    batch.recycle(3, Session(seed=7))
    batch.lab.compact()
    for _ in range(batch.prefill_ticks(Session())):
        batch.step(torch.zeros(4, 1920))
    frames = [batch.step(sound(*[tick] * 4)) for tick in range(8)]

    assert same(live(frames, 3), still)
    greedy = batch.admit(Session())
    assert batch.occupancy.table.draws(batch.occupancy.table.row_of[greedy]) is None


def test_poison_reaches_nobody(batch, still):
    assert all(map(same, heard(batch, batch.lab.poison_free), still))


def test_a_poisoned_row_is_clean_for_its_next_session(batch):
    clean = talk(batch, 0, Session(), 6)
    batch.release(0)
    batch.lab.poison_free()

    assert same(talk(batch, 0, Session(), 6), clean)


def test_poison_where_a_session_reads_is_noticed(batch, still):
    """The twin: the poison is put into rows that are occupied."""

    def everywhere():
        batch.tick.state.poison(torch.ones(8, dtype=torch.bool))

    assert not any(map(same, heard(batch, everywhere), still))


@pytest.mark.parametrize("session", [Session(), Session(seed=11)], ids=["greedy", "sampled"])
def test_one_pass_decides_what_the_ticks_did(batch, session):
    """Prompt, pauses and the silence behind the input included."""
    session = Session(batch.personas[-1], batch.voices[-1], session.seed)
    talk(batch, 1, session, 6)
    batch.step(sound(9, 9, 9, 9), live=[True, False, True, True])
    batch.finish(1)
    batch.step(sound(9, 9, 9, 9))
    stepped = batch.lab.transcript(1)

    assert stepped.shape == (batch.prefill_ticks(session) + 7, batch.streams)
    assert torch.equal(batch.lab.one_pass(1), stepped)


def test_one_pass_over_other_audio_decides_otherwise(batch):
    """The twin: what was heard is not what the pass is given."""
    talk(batch, 1, Session(), 6)
    occupant = batch.occupancy.occupants[1]
    occupant.audio[2] = -occupant.audio[2][::-1].copy()

    assert not torch.equal(batch.lab.one_pass(1), batch.lab.transcript(1))


def test_a_failure_ends_the_next_tick_of_its_slot_alone(batch):
    batch.lab.fail_next("frame:2")
    assert batch.usage()["failures"] == 1
    paused = batch.step(sound(0, 0, 0, 0), live=[True, True, False, True])
    frames = batch.step(sound(1, 1, 1, 1))

    assert paused[2].phase is Phase.PAUSED
    assert [frame.phase for frame in frames] == [Phase.LIVE, Phase.LIVE, Phase.FAILED, Phase.LIVE]
    assert "frame:2" in frames[2].error
    assert batch.step(sound(2, 2, 2, 2))[2].phase is Phase.FREE
    assert batch.usage() == {"slots": 3, "streams": 3, "draws": 0, "failures": 0}


@pytest.mark.parametrize("op", ["frame:4", "frame", "copy"])
def test_an_unknown_operation_is_named(shared, op):
    with pytest.raises(ValueError, match=rf"{op!r}.*frame:0"):
        shared.lab.fail_next(op)


def test_nothing_lags_in_lockstep(shared):
    with pytest.raises(ValueError, match="cannot lag"):
        shared.lab.lag("frame:0", 1)


def test_a_session_that_took_no_part_has_no_transcript(batch):
    batch.recycle(0, Session())
    with pytest.raises(ValueError, match="slot 0"):
        batch.lab.transcript(0)
