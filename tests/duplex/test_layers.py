"""A transformer's ticks are its sequence, past the wrap of its rings; a window is a window; positions are relative."""

import copy
from dataclasses import replace

import pytest
import torch

from harness.duplex.reference import layers, ring
from harness.duplex.reference.config import TransformerConfig
from harness.duplex.reference.layers import Transformer, rope_angles, rotate
from harness.duplex.reference.model import initialize
from harness.duplex.reference.ring import RingKV
from tests.duplex.networks import generator, patched, rounded

CONFIG = TransformerConfig(32, 2, 3, 64, context=5)
ROWS, TICKS = 8, 17


def transformer(config=CONFIG):
    """In float64, of weights that float32 holds."""
    made = Transformer(config).requires_grad_(False)
    initialize(made, generator())
    return made.double()


def inputs(ticks=TICKS):
    return torch.randn(ROWS, ticks, CONFIG.hidden, generator=generator(1)).double()


def stepped(network, x, start=0):
    """The sequence tick by tick, from position `start` on."""
    rings = RingKV(network.config, ROWS, "cpu", x.dtype)
    rings.positions += start
    everyone = torch.ones(ROWS, dtype=torch.bool)
    return torch.stack([network.step(tick, rings, everyone) for tick in x.unbind(1)], 1)


def check_sequence():
    network, x = transformer(), inputs()
    torch.testing.assert_close(stepped(network, x), network.sequence(x), rtol=0, atol=1e-6)


def check_single():
    """In float32, within what that may cost."""
    network, x = transformer(), inputs()
    exact = network.sequence(x)
    allowed = (rounded(network).sequence(x) - exact).abs().max()

    assert (stepped(copy.deepcopy(network).float(), x.float()) - exact).abs().max() < allowed


CHECKS = [check_sequence, check_single]


@pytest.mark.parametrize("check", CHECKS)
def test_ticks_are_the_sequence(check):
    check()


VISIT = RingKV.visit


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (ring, "visible", lambda positions, cells: cells < positions[:, None]),
        (ring, "visible", lambda positions, cells: (cells <= positions[:, None]) & (cells != (positions[:, None] + 1) % 5)),
        (RingKV, "visit", lambda rings, active: VISIT(rings, active)._replace(positions=torch.zeros_like(rings.positions))),
    ],
    ids=["not-itself", "one-less-behind-the-wrap", "no-positions"],
)
def test_wrong_steps_are_seen(check, owner, name, wrong):
    with patched(owner, name, wrong), pytest.raises(AssertionError):
        check()


def test_a_position_reaches_a_window_of_windows_and_no_further():
    """Each layer looks context - 1 ticks back."""
    network, x = transformer(), inputs()
    reach = CONFIG.layers * (CONFIG.context - 1)
    other = x.clone()
    other[:, 0, 0] += 1
    moved = (network.sequence(x) != network.sequence(other)).any(-1).all(0)

    assert moved.nonzero().flatten().tolist() == list(range(reach + 1))
    assert reach + 1 < TICKS


def test_a_smaller_window_is_another_network():
    x = inputs()
    narrow = replace(CONFIG, context=CONFIG.context - 1)

    assert not torch.allclose(transformer(narrow).sequence(x)[:, -1], transformer().sequence(x)[:, -1], atol=1e-3)


LATE = 10_000 * CONFIG.context


def check_relative():
    network, x = transformer(), inputs()
    # An angle is off by half a unit of its last place, and so is the difference of two.
    torch.testing.assert_close(stepped(network, x, LATE), network.sequence(x), rtol=0, atol=TICKS * LATE * 2**-24)


def test_positions_are_relative():
    """A row that has come to position 50,000 goes on as one at the start does, to what a float32 angle can say."""
    check_relative()


def test_positions_that_wrap_are_seen():
    """Where they do, what is a tick old is not."""
    with patched(layers, "rope_angles", lambda positions, *rest: rope_angles(positions % 7, *rest)), pytest.raises(AssertionError):
        check_relative()


def test_rotation_keeps_lengths_and_turns_pairs():
    x = torch.randn(3, 2, 8, generator=generator()).double()
    turned = rotate(x, rope_angles(torch.tensor([0, 1, 7]), 8, torch.float64))

    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-6, atol=0)
    assert torch.equal(turned[0], x[0])
    first, fifth = x[1, :, 0], x[1, :, 4]
    angle = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(turned[1, :, 0], first * angle.cos() - fifth * angle.sin(), rtol=0, atol=1e-6)
    torch.testing.assert_close(turned[1, :, 4], fifth * angle.cos() + first * angle.sin(), rtol=0, atol=1e-6)
