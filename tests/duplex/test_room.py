"""What is computed in a room is what is computed without one, bit for bit, whatever lay there; attributes are the parameters."""

import copy

import pytest
import torch

from harness.duplex.reference.codec import BlockConv
from harness.duplex.reference.config import TransformerConfig
from harness.duplex.reference.layers import Layer
from harness.duplex.reference.model import initialize
from harness.duplex.reference.room import ConvRoom, LayerRoom
from tests.duplex.networks import agree, generator

ROWS, INPUTS, OUTPUTS, TICKS = 8, 6, 4, 3
CONFIG = TransformerConfig(32, 2, 1, 64, context=5)


def made(network):
    """With parameters drawn, biases too."""
    initialize(network.requires_grad_(False), generator())
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(generator=generator(1))
    return network


def steps(blocks, broken=None):
    """Ticks of a convolution in a spoilt room, each held to `forward`."""
    conv, room = made(BlockConv(INPUTS, OUTPUTS)), ConvRoom(ROWS, blocks, OUTPUTS, "cpu", torch.float32)
    carry = torch.zeros(ROWS, OUTPUTS)
    for tick in range(TICKS):
        x = torch.randn(ROWS, blocks, INPUTS, generator=generator(2 + tick))
        expected, later = conv(x, carry)
        room.poison()
        if broken:
            broken(room)
        agree(conv.step(x.flatten(0, 1), carry, room), expected.flatten(1))
        agree(room.carry, later)
        carry = room.carry.clone()


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_a_convolution_in_its_room_is_the_same(blocks):
    steps(blocks)


def across_rows(room):
    """The first block of a row follows the last one of the row before."""
    room.felt_first = torch.empty_like(room.felt_first)


def not_shifted(room):
    room.before = room.product[:, OUTPUTS:]


@pytest.mark.parametrize("broken", [across_rows, not_shifted])
def test_a_wrong_room_is_seen(broken):
    with pytest.raises(AssertionError):
        steps(2, broken)


def test_a_layer_in_its_room_is_the_same():
    layer, room = made(Layer(CONFIG)), LayerRoom.make(CONFIG, ROWS, "cpu", torch.float32)
    x, attended = torch.randn(2, ROWS, CONFIG.hidden, generator=generator(2))
    expected, before = layer.finish(x, attended), x.clone()
    room.poison()

    agree(layer.finish(x, attended, room.finish), expected)
    agree(x, before)
    # Of the next layer, whose input lies there already.
    agree(layer.finish(room.finish.state, attended, room.finish), layer.finish(expected, attended))


@pytest.mark.parametrize("change", [copy.deepcopy, lambda conv: copy.deepcopy(conv).double()], ids=["copied", "double"])
def test_attributes_are_the_parameters(change):
    conv = made(BlockConv(INPUTS, OUTPUTS))
    changed = change(conv)

    for name, parameter in changed.named_parameters():
        assert getattr(changed, name) is parameter
        assert getattr(conv, name) is not parameter
    assert {name for name, _ in changed.named_parameters()} == {"kernel", "bias"}


def test_a_parameter_that_is_set_takes_its_place():
    conv = made(BlockConv(INPUTS, OUTPUTS))
    conv.bias = torch.nn.Parameter(torch.ones(2 * OUTPUTS), requires_grad=False)

    assert dict(conv.named_parameters())["bias"] is conv.bias
    assert conv(torch.zeros(1, 1, INPUTS), torch.zeros(1, OUTPUTS))[0].unique().tolist() == [1]
