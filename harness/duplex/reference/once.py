"""The decisions of one session in one pass: no rings, no carried context, no ticks; a witness against the stepped path."""

from __future__ import annotations

import numpy as np
import torch

from harness.duplex.reference.codec import Codec
from harness.duplex.reference.config import DELAYS, FRAME_SIZE, ROWS, USER
from harness.duplex.reference.draws import Draws
from harness.duplex.reference.prompt import Prompt
from harness.duplex.reference.slots import Occupant
from harness.duplex.reference.tick import Tick

ROUNDING = {torch.float32: 2.0**-12, torch.bfloat16: 2.0**-4}
"""By how much scores of one pass and of the ticks may differ, in parts of their spread: their sums run in other orders."""


@torch.no_grad()
def decide_anew(tick: Tick, occupant: Occupant) -> torch.Tensor:
    """i64[ticks, ROWS], a column a tick since its prefill began, of the columns that the session had, its audio and its draws.

    A token that was given is computed from where it was given: the prompt, or the caller's audio in one pass of the encoder. Where the
    session's token scores as well as the best, up to rounding, it stands.
    """
    model, prompt = tick.model, occupant.prompt
    device = model.silence.device
    columns = torch.stack(occupant.columns).to(device)
    given, is_given = _given(tick, occupant, columns)
    embedded = torch.tensor([position < prompt.voice_ticks for position in range(len(columns))], device=device)
    voice = tick.voices[prompt.voice]
    override = voice.embeddings.new_zeros(len(columns), voice.embeddings.shape[1])
    override[: prompt.voice_ticks] = voice.embeddings[: len(columns)]
    text, audio = model.language.logits_sequence(columns[None], override[None], embedded[None], _inputs(tick, prompt, columns)[None])
    text_noise, audio_noise = _noise(tick, occupant, len(columns))
    decided = given.clone()
    rounding, spoken = ROUNDING[text.dtype], slice(1, 1 + audio.shape[2])
    decided[:, 0] = best(text[0].float() + text_noise, columns[:, 0], rounding)
    decided[:, spoken] = best(audio[0].float() + audio_noise, columns[:, spoken], rounding)
    return torch.where(is_given, given, decided).cpu()


def _inputs(tick: Tick, prompt: Prompt, columns: torch.Tensor) -> torch.Tensor:
    """What each tick was fed: the column before it, and behind the voice that of its snapshot."""
    inputs = torch.cat((tick.staging.initial[None], columns[:-1]))
    if len(inputs) > prompt.voice_ticks:
        ring = tick.voices[prompt.voice].ring
        inputs[prompt.voice_ticks] = ring[:, (prompt.voice_ticks - 1) % ring.shape[1]]
    return inputs


def best(scores: torch.Tensor, had: torch.Tensor, rounding: float) -> torch.Tensor:
    """The token of the highest of f32[..., n], i64[...]; the one that the session `had`, if it comes as near to that as rounding does."""
    short = scores.amax(-1) - scores.gather(-1, had.clamp(max=scores.shape[-1] - 1)[..., None]).squeeze(-1)
    stands = (short <= rounding * scores.std(-1)) & (had < scores.shape[-1])
    return torch.where(stands, had, scores.argmax(-1))


def heard_as(codec: Codec, audio: torch.Tensor, had: torch.Tensor) -> torch.Tensor:
    """The codes of audio f32[1, ticks * FRAME_SIZE], i64[ticks, 8], in one pass; as `best` where those that it `had` are as near."""
    books, left = codec.quantizer.books, codec.latents(audio)[0] @ codec.quantizer.project_in
    codes = []
    for book, ours in zip(books, had.unbind(1), strict=True):
        codes.append(best((left @ book.T - 0.5 * book.square().sum(-1)).float(), ours, ROUNDING[book.dtype]))
        left = left - book[codes[-1]]
    return torch.stack(codes, 1)


def _given(tick: Tick, occupant: Occupant, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens that were given, and where: i64 and bool[ticks, ROWS]."""
    model, prompt, ticks = tick.model, occupant.prompt, len(columns)
    frames = torch.zeros(ticks, ROWS, dtype=torch.int64, device=model.silence.device)
    known = torch.zeros_like(frames, dtype=torch.bool)
    prompted = min(ticks, len(prompt))
    frames[:prompted] = torch.cat((model.silence.new_zeros(1), model.silence, model.sine))
    frames[:prompted, 0] = torch.tensor(prompt.texts[:prompted], device=frames.device)
    known[:prompted] = True
    if occupant.audio:
        heard = torch.from_numpy(np.stack(occupant.audio)).to(frames.device).view(1, len(occupant.audio) * FRAME_SIZE)
        # A frame whose delayed codes are still to come has none of them in a column.
        behind = torch.cat((columns, tick.staging.initial.expand(max(DELAYS), -1)))
        had = torch.stack([behind[delay : delay + ticks, row] for row, delay in enumerate(DELAYS)], 1)[prompted:, USER]
        frames[prompted:, USER] = heard_as(model.codec, heard, had)
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
