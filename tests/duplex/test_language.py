"""The language model's ticks are its teacher-forced sequence; what is given is taken; a seed's noise moves what is decided."""

import copy

import pytest
import torch

from harness.duplex.reference import depth, language
from harness.duplex.reference.config import ROWS
from harness.duplex.reference.language import Noise, decide
from tests.duplex.networks import SMALL, TICKS, columns, generator, patched, rounded, small

MODEL = small(torch.float64)
DECIDED = 1 + SMALL.depth.context
"""Rows that the model decides, the text's among them."""
R = 8


def overrides():
    """A voice at the first ticks, and a stray embedding later: f64[R, TICKS, hidden], bool[R, TICKS]."""
    where = torch.zeros(R, TICKS, dtype=torch.bool)
    where[:, :2] = where[3, 7] = True
    return torch.randn(R, TICKS, SMALL.temporal.hidden, generator=generator(8)).double(), where


@torch.inference_mode()
def spoken(model, noise=None, taken=()):
    """Columns i64[R, TICKS, 17] that the model decides by itself, each from the one before; `taken` (row, tick) are given instead."""
    given, (override, where) = columns(R, TICKS), overrides()
    state, column, said = model.init_state(R), model.language.initial.expand(R, -1), []
    for tick in range(TICKS):
        is_given = torch.zeros(R, ROWS, dtype=torch.bool)
        is_given[:, DECIDED:] = True
        for row, at in taken:
            is_given[:, row] |= at == tick
        draws = None if noise is None else Noise(noise.text[:, tick], noise.audio[:, tick])
        everyone = torch.ones(R, dtype=torch.bool)
        embedding = override[:, tick].to(model.language.embedding.dtype)
        column = model.language.step(column, embedding, where[:, tick], given[:, tick], is_given, draws, state.language, everyone)
        said.append(column)
    return torch.stack(said, 1)


@torch.inference_mode()
def logits_anew(model, said, inputs=None):
    """Text f[R, TICKS, 1, text_card] and audio f[R, TICKS, codebooks, card], in one pass."""
    text, audio = model.language.logits_sequence(said, *overrides(), inputs)
    return text.unsqueeze(2), audio


def anew(said, inputs=None):
    """The decisions in one pass: i64[R, TICKS, decided rows]."""
    return torch.cat([logits.argmax(-1) for logits in logits_anew(MODEL, said, inputs)], 2)


def decides():
    said = spoken(MODEL)

    assert torch.equal(said[..., :DECIDED], anew(said))
    assert torch.equal(said[..., DECIDED:], columns(R, TICKS)[..., DECIDED:])


def decides_in_single_precision():
    """Also in float32, wherever the margin is wider than what that may cost both of the two best."""
    said = spoken(copy.deepcopy(MODEL).float())
    exact, moved = logits_anew(MODEL, said), logits_anew(rounded(MODEL), said)
    margins = torch.cat([logits.topk(2).values.diff(dim=-1).abs().squeeze(-1) for logits in exact], 2)
    allowed = max((one - other).abs().max() for one, other in zip(exact, moved, strict=True))
    clear = margins > 2 * allowed

    assert clear.double().mean() > 0.9
    assert torch.equal(said[..., :DECIDED][clear], anew(said)[clear])


CHECKS = [decides, decides_in_single_precision]


@pytest.mark.parametrize("check", CHECKS)
def test_ticks_are_the_sequence(check):
    check()


@pytest.mark.parametrize("check", CHECKS)
def test_steps_that_forget_the_row_before_are_seen(check):
    def forgetful(step, part, before, places):
        return FORWARD(step, part, torch.zeros_like(before), places)

    with patched(depth.DepthStep, "forward", forgetful), pytest.raises(AssertionError):
        check()


FORWARD = depth.DepthStep.forward


@pytest.mark.parametrize("check", CHECKS)
def test_steps_that_miss_the_voice_are_seen(check):
    def deaf(model, tokens, override, where):
        return EMBED(model, tokens, override, where if where.dim() == 2 else where & False)

    with patched(language.LanguageModel, "_embed", deaf), pytest.raises(AssertionError):
        check()


EMBED = language.LanguageModel._embed


def test_another_transcript_is_decided_otherwise():
    said = spoken(MODEL)
    wrong = said.clone()
    wrong[:, 4, 0] = (wrong[:, 4, 0] + 1) % SMALL.text_card
    differ = (anew(wrong) != anew(said)).any(0).any(-1)

    assert differ.nonzero().flatten()[0] == 4  # the depth transformer of the same tick, and the ticks after
    assert differ[5:].any()


def test_inputs_may_be_other_columns_than_those_before():
    """As behind a voice, whose snapshot takes the place of what was decided."""
    said = spoken(MODEL)
    shifted = torch.cat((MODEL.language.initial.expand(R, 1, -1), said[:, :-1]), 1)
    other = shifted.clone()
    other[:, 5] = columns(R, 1, seed=44)[:, 0]

    assert torch.equal(anew(said, shifted), anew(said))
    assert (anew(said, other) != anew(said)).any(0).any(-1).nonzero().flatten()[0] == 5


def test_what_is_given_is_taken_and_heard():
    """In the same tick by the rows behind it, and by the ticks after."""
    free, held = spoken(MODEL), spoken(MODEL, taken=[(2, 4)])
    given = columns(R, TICKS)

    assert torch.equal(held[:, :4], free[:, :4])
    assert torch.equal(held[:, 4, :2], free[:, 4, :2])
    assert torch.equal(held[:, 4, 2], given[:, 4, 2])
    assert (held[:, 4, 3:DECIDED] != free[:, 4, 3:DECIDED]).any()
    assert torch.equal(held[..., 3:DECIDED], anew(held)[..., 3:])


def test_noise_moves_its_row_alone():
    text = torch.zeros(R, TICKS, SMALL.text_card)
    audio = torch.zeros(R, TICKS, SMALL.depth.context, SMALL.audio_card)
    greedy, silent = spoken(MODEL), spoken(MODEL, Noise(text, audio))
    audio[1, 3, 5, 17] = 1e6
    loud = spoken(MODEL, Noise(text, audio))
    others = torch.arange(R) != 1

    assert torch.equal(silent, greedy)
    assert torch.equal(loud[others], greedy[others])
    assert loud[1, 3, 6] == 17
    assert torch.equal(loud[1, 3, :6], greedy[1, 3, :6])


def test_of_equals_the_first_is_decided():
    nothing = torch.zeros(2, dtype=torch.int64)
    logits = torch.tensor([[1.0, 5.0, 5.0], [torch.nan, torch.nan, torch.nan]])

    assert decide(logits, None, nothing, nothing.bool())[0] == 1
    assert 0 <= decide(logits, None, nothing, nothing.bool())[1] < 3
    assert decide(logits, None, nothing + 2, ~nothing.bool()).tolist() == [2, 2]
