"""`duplex/moshi` without its package: options, slots, sessions, and who is refused weights. With it: one tick and its shapes."""

import importlib.util

import pytest
import torch

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.core.verdict import Unavailable
from harness.duplex.engines import moshi, moshi_weights
from harness.duplex.engines.hub import gated, is_refusal
from harness.duplex.engines.moshi_options import MoshiOptions
from harness.duplex.engines.slots import Slots
from harness.duplex.protocol import Phase, Session

INSTALLED = pytest.mark.skipif(importlib.util.find_spec("moshi") is None, reason="moshi is not installed: make engine NAME=moshi")


class GatedRepoError(Exception):
    """Named as the hub's own."""


@pytest.mark.parametrize(
    ("device", "given", "size", "graphs"),
    [
        ("cpu", {}, "tiny", False),
        ("cuda", {}, "7b", True),
        ("cuda", {"size": "tiny", "graphs": "off"}, "tiny", False),
        ("cpu", {"weights": "hub"}, "7b", False),
    ],
)
def test_auto_follows_the_device_and_the_weights(device, given, size, graphs):
    options = MoshiOptions.parse(given, device)

    assert (options.size, options.graphs) == (size, graphs)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bach": "4"}, "unknown option 'bach'; nearest: batch"),
        ({"batch": "0"}, "option batch = '0'"),
        ({"batch": "many"}, "option batch = 'many'"),
        ({"sdpa": "flsh"}, "nearest: flash"),
        ({"size": "7B"}, "option size"),
        ({"weights": "hub", "size": "tiny"}, "size = 'tiny'"),
        ({"graphs": "on"}, "cpu has no CUDA graphs"),
    ],
)
def test_a_wrong_option_is_named(given, says):
    with pytest.raises(ValueError, match=says):
        MoshiOptions.parse(given, "cpu")


@pytest.mark.parametrize("session", [Session(persona="a pirate"), Session(voice="NATF2"), Session(seed=1)])
def test_a_session_is_refused_what_the_engine_does_not_have(session):
    with pytest.raises(ValueError, match=r"leave it None"):
        moshi._refuse(session)


def test_a_default_session_is_taken():
    moshi._refuse(Session())


def test_each_occupant_of_a_slot_is_the_next_epoch_and_counts_its_own_frames():
    slots = Slots(2)
    slots.occupy(1)
    counted = [slots.delivered(1), slots.delivered(1)]
    slots.occupy(1)

    assert (counted, slots.epoch(1), slots.delivered(1)) == ([0, 1], 1, 0)


def test_the_first_free_slot_is_given_and_then_none():
    slots = Slots(2)
    slots.occupy(0)
    assert slots.free() == 1

    slots.occupy(1)
    with pytest.raises(RuntimeError, match="none of the 2 slots is free"):
        slots.free()


@pytest.mark.parametrize("slot", [-1, 2])
def test_a_slot_that_there_is_not_is_refused_and_changes_nothing(slot):
    slots = Slots(2)
    for call in (slots.occupy, slots.vacate, slots.is_occupied):
        with pytest.raises(ValueError, match="there are 2, from 0"):
            call(slot)

    assert slots.occupied == 0


def test_a_free_slot_is_not_vacated_again():
    slots = Slots(1)
    slots.occupy(0)
    slots.vacate(0)

    with pytest.raises(ValueError, match="slot 0 is free"):
        slots.vacate(0)


@pytest.mark.parametrize("error", [GatedRepoError("no"), OSError("401 Client Error"), OSError("403 Forbidden")])
def test_a_refusal_of_the_hub_is_unavailable(error):
    with pytest.raises(Unavailable, match="no access to kyutai/x"), gated("kyutai/x"):
        raise error


@pytest.mark.parametrize("error", [OSError("404 Not Found"), RuntimeError("size mismatch"), MemoryError()])
def test_any_other_failure_to_load_is_a_failure(error):
    assert not is_refusal(error)
    with pytest.raises(type(error)), gated("kyutai/x"):
        raise error


def test_the_tiny_model_has_moshi_s_rows_and_a_tick_of_80_ms():
    seanet, lm = moshi_weights.TINY_MIMI["seanet"], moshi_weights.TINY_LM
    downsampled = 2 * torch.tensor(seanet["ratios"]).prod()

    assert moshi_weights.TINY_MIMI["sample_rate"] / moshi_weights.TINY_MIMI["frame_rate"] == downsampled == 1920
    assert (len(lm["delays"]), lm["n_q"] + 1, lm["card"]) == (17, 17, moshi_weights.TINY_MIMI["quantizer"]["bins"])


@INSTALLED
def test_a_row_in_warm_up_gives_nothing_while_its_neighbours_talk():
    engine = moshi.MoshiDuplex.build(EngineConfig("cpu", "cpu", {"batch": "2"}, seed=0), VirtualClock())
    engine.open()
    heard = 0.1 * torch.ones(2, engine.frame_size)
    for _ in range(engine.delay + 1):
        engine.step(heard)
    engine.recycle(1, Session())
    talking, warming = engine.step(heard)
    engine.close()

    assert (talking.phase, warming.phase) == (Phase.LIVE, Phase.WARMUP)
    assert (warming.audio, warming.tokens, warming.text) == (None, None, None)
    assert (talking.audio.shape, talking.tokens.shape) == ((engine.frame_size,), (engine.streams,))
