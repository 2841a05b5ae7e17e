"""The codec's ticks are its sequence; it is causal; its convolutions are those of torch."""

import copy

import pytest
import torch
from torch.nn import functional as F

from harness.duplex.reference import codec
from harness.duplex.reference.codec import BlockConv
from harness.duplex.reference.config import FRAME_SIZE
from harness.duplex.reference.model import initialize
from tests.duplex.networks import TICKS, Stream, columns, generator, patched, rounded, small, sound

MODEL = small(torch.float64)
# A model's codec is float32, whatever the rest is.
MODEL.codec.double()


def block_conv(inputs, outputs):
    made = BlockConv(inputs, outputs).requires_grad_(False)
    initialize(made, generator())
    made.bias[outputs:] = 0
    made.bias[:outputs].normal_(generator=generator(1))
    return made.double()


@torch.no_grad()
def test_blocks_at_the_input_are_a_strided_convolution():
    """Of kernel 2 * stride, whose first half meets the block before."""
    stride, channels, outputs = 3, 2, 5
    made = block_conv(stride * channels, outputs)
    x = torch.randn(1, channels, 4 * stride, generator=generator(2)).double()
    blocks = x.view(channels, 4, stride).permute(1, 2, 0).reshape(1, 4, stride * channels)
    now, later = made.kernel.view(stride, channels, 2, outputs).permute(2, 3, 1, 0)
    expected = F.conv1d(F.pad(x, (stride, 0)), torch.cat((later, now), -1), made.bias[:outputs], stride)

    got, _ = made(blocks, torch.zeros(1, outputs).double())
    torch.testing.assert_close(got.transpose(1, 2), expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_blocks_at_the_output_are_its_transpose():
    stride, channels, inputs = 3, 2, 5
    made = block_conv(inputs, stride * channels)
    made.bias.zero_()
    x = torch.randn(1, inputs, 4, generator=generator(2)).double()
    kernel = made.kernel.view(inputs, 2, stride, channels).permute(0, 3, 1, 2).flatten(2)
    expected = F.conv_transpose1d(x, kernel, stride=stride)[..., : 4 * stride]

    got, carry = made(x.transpose(1, 2), torch.zeros(1, stride * channels).double())
    torch.testing.assert_close(got.view(1, 4, stride, channels).permute(0, 3, 1, 2).flatten(2), expected, rtol=0, atol=1e-12)
    rest = F.conv_transpose1d(x, kernel, stride=stride)[..., 4 * stride :]
    torch.testing.assert_close(carry.view(1, stride, channels).transpose(1, 2), rest, rtol=0, atol=1e-12)


@torch.inference_mode()
def encodes():
    pcm = sound(8, TICKS)
    expected = MODEL.codec.encode_sequence(pcm.flatten(1))

    assert torch.equal(Stream("encoder", MODEL).run(pcm), expected)


@torch.inference_mode()
def decodes():
    codes = columns(8, TICKS)[..., 1:9]
    heard = Stream("decoder", MODEL).run(codes).flatten(1)

    assert heard.dtype is torch.float32
    # Rounded to float32 at the end, values below 1.
    torch.testing.assert_close(heard.double(), MODEL.codec.decode_sequence(codes), rtol=0, atol=2**-23)


@pytest.mark.parametrize("check", [encodes, decodes])
def test_ticks_are_the_sequence(check):
    check()


def forgotten(carries, after, active):
    for carry in carries:
        carry.zero_()


def late(carries, after, active):
    for carry, later in zip(carries, after, strict=True):
        carry.copy_(0.5 * (carry + later))


@pytest.mark.parametrize("check", [encodes, decodes])
@pytest.mark.parametrize("wrong", [forgotten, late])
def test_wrong_carries_are_seen(check, wrong):
    with patched(codec, "keep", wrong), pytest.raises(AssertionError):
        check()


@torch.inference_mode()
def test_single_precision_decodes_the_same_sound():
    """Within what float32 may cost."""
    codes = columns(8, TICKS)[..., 1:9]
    exact = MODEL.codec.decode_sequence(codes)
    allowed = (rounded(MODEL.codec).decode_sequence(codes) - exact).abs().max()

    heard = Stream("decoder", copy.deepcopy(MODEL).float()).run(codes).flatten(1)
    assert (heard - exact).abs().max() < allowed


@torch.inference_mode()
def test_the_encoder_hears_the_past_alone():
    pcm, tick = sound(2, TICKS), 5
    other = pcm.clone()
    other[:, tick, -1] += 0.5
    one, two = MODEL.codec.latents(pcm.flatten(1)), MODEL.codec.latents(other.flatten(1))

    assert (one != two).any(-1).any(0).int().argmax() == tick


@torch.inference_mode()
def test_the_decoder_says_the_past_alone():
    codes, tick = columns(2, TICKS)[..., 1:9], 5
    other = codes.clone()
    other[:, tick, 7] = (other[:, tick, 7] + 1) % MODEL.config.audio_card
    differ = MODEL.codec.decode_sequence(codes) != MODEL.codec.decode_sequence(other)

    assert int(differ.any(0).int().argmax()) // FRAME_SIZE == tick


@torch.inference_mode()
def test_sound_stays_in_range():
    loud = copy.deepcopy(MODEL)
    loud.codec.decoder[-1].kernel *= 1e3
    heard = Stream("decoder", loud).run(columns(8, TICKS)[..., 1:9])

    assert heard.shape == (8, TICKS, FRAME_SIZE)
    assert heard.abs().max() == 1
