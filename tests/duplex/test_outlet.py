"""What a slot gives, and when."""

import pytest
import torch

from harness.duplex.protocol import Phase, Session
from harness.duplex.reference.outlet import Outlet
from harness.duplex.reference.prompt import Prompt
from harness.duplex.reference.slots import Occupant
from harness.duplex.reference.staging import Mark
from harness.duplex.reference.words import Words

AUDIO = torch.zeros(1920)


@pytest.fixture
def outlet():
    outlet = Outlet(2, Words(["", "north", "cape"]))
    outlet.begin(0)
    return outlet


@pytest.fixture
def occupant():
    return Occupant(Session(), 3, Prompt(0, 1, (0,)), base=0)


def give(outlet, occupant, seq, token=0):
    return outlet.give(0, occupant, Mark(occupant.epoch, True, seq), torch.tensor([token, 9]), AUDIO)


def test_a_frame_of_the_conversation_is_given(outlet, occupant):
    mark = Mark(3, True, 0)
    assert outlet.delivers(0, occupant, mark)

    outlet.staged(0, mark)
    frame = give(outlet, occupant, 0, token=2)
    assert (frame.phase, frame.epoch, frame.seq, frame.text) == (Phase.LIVE, 3, 0, "cape")
    assert frame.audio is AUDIO


@pytest.mark.parametrize("mark", [Mark(2, True, 0), Mark(3, False, 0), Mark(2, False, 0)], ids=["predecessor", "prompt", "both"])
def test_a_frame_of_another_or_of_the_prompt_is_not(outlet, occupant, mark):
    assert not outlet.delivers(0, occupant, mark)


def test_no_frame_is_given_twice(outlet, occupant):
    give(outlet, occupant, 4)

    assert not outlet.delivers(0, occupant, Mark(3, True, 4))
    assert outlet.delivers(0, occupant, Mark(3, True, 5))


def test_the_next_occupant_begins_anew(outlet, occupant):
    """Its frame 0 is no duplicate of the former occupant's."""
    give(outlet, occupant, 4)
    outlet.forget(0)
    outlet.begin(0)

    assert outlet.delivers(0, occupant, Mark(3, True, 0))
    assert not outlet.is_ending(0)


def test_a_stream_is_drained_once_all_is_given(outlet, occupant):
    """Not before its input has ended, and not while a frame is under way."""
    outlet.staged(0, Mark(3, True, 0))
    assert not outlet.is_drained(0)

    outlet.end_input(0)
    outlet.staged(0, Mark(3, False, 1))
    assert outlet.is_ending(0)
    assert not outlet.is_drained(0)

    give(outlet, occupant, 0)
    assert outlet.is_drained(0)


def test_input_that_ends_before_it_began_is_drained_at_once(outlet):
    outlet.staged(0, Mark(3, False, 0))
    outlet.end_input(0)

    assert outlet.is_drained(0)


def test_the_last_word_is_said_once(outlet, occupant):
    assert outlet.last_word(0, occupant).phase is Phase.DRAINED
    assert 0 not in outlet.streams

    outlet.begin(0)
    failed = outlet.last_word(0, occupant, "no more paper")
    assert (failed.phase, failed.error, failed.epoch) == (Phase.FAILED, "no more paper", 3)


def test_pieces_joined_are_the_text(outlet, occupant):
    pieces = [give(outlet, occupant, seq, token).text for seq, token in enumerate((0, 1, 0, 2, 1))]

    assert pieces == [None, "north", None, " cape", " north"]
