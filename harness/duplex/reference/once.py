"""The decisions of one session in one pass: no rings, no carried context, no ticks; a witness against the stepped path.

Two sums of the same numbers in another order differ by rounding, and a decision between two scores that are as near as that may
fall either way. So the pass is made twice, in the weights' own type and in the next wider one. Where a session's own token scores less
than the best by no more than the two passes differ anywhere in it, nobody can say that another one is right, and it stands.
"""

from __future__ import annotations

import copy

import numpy as np
import torch

from harness.duplex.reference.codec import Codec
from harness.duplex.reference.config import AGENT, DELAYS, FRAME_SIZE, MAX_DELAY, ROWS, USER, USER_ROWS
from harness.duplex.reference.draws import Draws
from harness.duplex.reference.model import DuplexModel
from harness.duplex.reference.prompt import Prompt
from harness.duplex.reference.slots import Occupant
from harness.duplex.reference.tick import Tick

STEP = 2.0**-15
"""Of 16-bit audio, of which 1 is full scale."""
WIDER = {torch.bfloat16: torch.float32, torch.float32: torch.float64, torch.float64: torch.float64}


@torch.no_grad()
def decide_anew(tick: Tick, occupant: Occupant) -> torch.Tensor:
    """i64[ticks, ROWS], a column a tick since its prefill began, of the columns that the session had, its audio and its draws.

    A token that was given is computed from where it was given: the prompt, or the caller's audio in one pass of the encoder.
    """
    model, prompt = tick.model, occupant.prompt
    device = model.silence.device
    columns = torch.stack(occupant.columns).to(device)
    wide = copy.deepcopy(model).to(WIDER[model.language.embedding.dtype])
    given, is_given = _given(tick, wide, occupant, columns)
    text_noise, audio_noise = _noise(tick, occupant, len(columns))
    (text, audio), (wide_text, wide_audio) = (_logits(tick, each, prompt, columns) for each in (model, wide))
    decided = given.clone()
    decided[:, 0] = standing(text + text_noise, wide_text + text_noise, columns[:, 0])
    rows = slice(1, 1 + audio.shape[1])
    decided[:, rows] = standing(audio + audio_noise, wide_audio + audio_noise, columns[:, rows])
    return torch.where(is_given, given, decided).cpu()


@torch.no_grad()
def decode_anew(tick: Tick, occupant: Occupant) -> tuple[torch.Tensor, float]:
    """What the frames of the conversation sound like, as `DuplexLab.sound` says."""
    columns = torch.stack(occupant.columns).to(tick.model.silence.device)
    frames = range(len(occupant.prompt), len(columns) - MAX_DELAY)
    rows = range(ROWS)[AGENT]
    codes = torch.stack([columns[[frame + DELAYS[row] for frame in frames], row] for row in rows], 1)[None]
    codec = tick.model.codec
    wide = copy.deepcopy(codec).to(WIDER[next(codec.parameters()).dtype])
    narrow_sound, sound = (each.decode_sequence(codes)[0].double() for each in (codec, wide))
    unsure = 2 * float((narrow_sound - sound).abs().max())
    return sound.view(-1, FRAME_SIZE).cpu(), max(unsure, STEP)


def standing(scores: torch.Tensor, wide: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The best of each `wide` score f[..., n], or the session's token i64[...] where rounding hides which of the two is better.

    `scores` are the same in the narrower type: each score is known as far as the two agree anywhere, and two of them are compared.
    """
    unsure = 2 * (scores.double() - wide.double()).abs().max()
    behind = wide.max(-1).values - wide.gather(-1, tokens.clamp(max=wide.shape[-1] - 1)[..., None]).squeeze(-1)
    return torch.where((behind <= unsure) & (tokens < wide.shape[-1]), tokens, wide.argmax(-1))


def _logits(tick: Tick, model: DuplexModel, prompt: Prompt, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of text f[ticks, text_card] and audio f[ticks, codebooks, card], at least float32."""
    ticks, voice = len(columns), tick.voices[prompt.voice].embeddings
    embedded = torch.arange(ticks, device=columns.device) < prompt.voice_ticks
    override = model.language.embedding.new_zeros(ticks, voice.shape[1])
    override[: prompt.voice_ticks] = voice[:ticks]
    logits = model.language.logits_sequence(columns[None], override[None], embedded[None], _inputs(tick, prompt, columns)[None])
    text, audio = (part[0] if part.dtype is torch.float64 else part[0].float() for part in logits)
    return text, audio


def _heard(narrow: Codec, wide: Codec, pcm: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """The codes i64[T, 8] of f32[T, FRAME_SIZE]; each codebook is asked for what the session's codes before it left over."""
    anew = torch.empty_like(codes)
    left = [codec.latents(pcm.view(1, -1))[0] @ codec.quantizer.project_in for codec in (narrow, wide)]
    for book in range(codes.shape[1]):
        entries = [codec.quantizer.books[book] for codec in (narrow, wide)]
        scores = [rest @ entry.t() - 0.5 * entry.square().sum(-1) for rest, entry in zip(left, entries, strict=True)]
        anew[:, book] = standing(*scores, codes[:, book])
        left = [rest - entry[codes[:, book].clamp(max=len(entry) - 1)] for rest, entry in zip(left, entries, strict=True)]
    return anew


def _inputs(tick: Tick, prompt: Prompt, columns: torch.Tensor) -> torch.Tensor:
    """What each tick was fed: the column before it, and behind the voice that of its snapshot."""
    inputs = torch.cat((tick.staging.initial[None], columns[:-1]))
    if len(inputs) > prompt.voice_ticks:
        ring = tick.voices[prompt.voice].ring
        inputs[prompt.voice_ticks] = ring[:, (prompt.voice_ticks - 1) % ring.shape[1]]
    return inputs


def _given(tick: Tick, wide: DuplexModel, occupant: Occupant, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens that were given, and where: i64 and bool[ticks, ROWS]."""
    model, prompt, ticks = tick.model, occupant.prompt, len(columns)
    frames = torch.zeros(ticks, ROWS, dtype=torch.int64, device=model.silence.device)
    known = torch.zeros_like(frames, dtype=torch.bool)
    prompted = min(ticks, len(prompt))
    frames[:prompted] = torch.cat((model.silence.new_zeros(1), model.silence, model.sine))
    frames[:prompted, 0] = torch.tensor(prompt.texts[:prompted], device=frames.device)
    known[:prompted] = True
    if occupant.audio:
        heard = torch.from_numpy(np.stack(occupant.audio)).to(frames.device)
        frames[prompted:, USER] = _heard(model.codec, wide.codec, heard, _told(columns, prompted))
        known[prompted:, USER] = True
    given, is_given = tick.staging.initial.repeat(ticks, 1), torch.zeros_like(known)
    for row, delay in enumerate(DELAYS):
        is_given[:delay, row] = True
        given[delay:, row] = frames[: ticks - delay, row]
        is_given[delay:, row] = known[: ticks - delay, row]
    if ticks > prompt.voice_ticks:
        # What the voice's snapshot put into the ring of the tokens on their way.
        ring = tick.voices[prompt.voice].ring
        for row, delay in enumerate(DELAYS):
            for column in range(prompt.voice_ticks, min(ticks, prompt.voice_ticks + delay)):
                given[column, row] = ring[row, column % ring.shape[1]]
    return given, is_given


def _told(columns: torch.Tensor, first: int) -> torch.Tensor:
    """The caller's codes i64[T, 8] of the frames from `first` on, as the session has them; 0 where its column is still to come."""
    ticks = len(columns)
    told = columns.new_zeros(ticks - first, USER_ROWS)
    for code, row in enumerate(range(ROWS)[USER]):
        own = columns[first + DELAYS[row] :, row]
        told[: len(own), code] = own
    return told


def _noise(tick: Tick, occupant: Occupant, ticks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The draws of every tick, from the session's seed anew: f32[ticks, text_card] and f32[ticks, codebooks, card]."""
    config = tick.config
    text = torch.zeros(ticks, config.text_card)
    audio = torch.zeros(ticks, config.depth.context, config.audio_card)
    if occupant.session.seed is not None:
        draws = Draws(occupant.session.seed)
        for at in range(len(occupant.prompt), ticks):
            draws.fill(text[at], audio[at])
    device = tick.model.silence.device
    return text.to(device), audio.to(device)
