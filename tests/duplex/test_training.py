"""The duplex training sees what the engine does, learns from it, and its score tells trained weights from others."""

from __future__ import annotations

import copy
import dataclasses
from itertools import cycle, product

import numpy as np
import pytest
import torch

from fixtures import duplex_sequences
from fixtures.duplex_codec_training import train_codec
from fixtures.duplex_conversations import REPLY, Drawing, Recordings, ask, last_heard, put, read, silent
from fixtures.duplex_language_training import train_language
from fixtures.duplex_score import converse, score
from fixtures.duplex_sequences import LEARNED
from fixtures.duplex_table import ANSWERS, CALLERS, DATA, PAD, PERSONAS, QUESTIONS, VOICES, tokens
from harness.duplex.protocol import Session
from harness.duplex.reference.config import CONFIGS, FRAME_SIZE
from harness.duplex.reference.model import DuplexModel
from tests.duplex.lockstep import build

LIVE = 36
WAIT = 3
"""Ticks of silence before the question."""


@pytest.fixture(scope="module")
def heard():
    """What ships, the questions standing for the answers, whose recordings do not."""
    questions = {(question, caller): read(DATA / f"{question}-{caller}.wav") for question in QUESTIONS for caller in CALLERS}
    said = cycle(questions.values())
    answers = {(persona, question, voice): next(said) for (persona, question), voice in product(ANSWERS, VOICES)}
    return Recordings(questions, {path.stem: read(path) for path in sorted(DATA.glob("foreign-*.wav"))}, answers)


@pytest.fixture(scope="module")
def trained():
    return DuplexModel.load(DATA / "tiny.safetensors", CONFIGS["tiny"])


@pytest.fixture(scope="module")
def talks(heard):
    """Every persona and voice is asked the same."""
    asked = [silent(persona, voice, LIVE) for persona, voice in product(PERSONAS, VOICES)]
    for talk in asked:
        ask(talk, "name", heard.questions["name", "cyd"], WAIT * FRAME_SIZE)
    return asked


@pytest.fixture(scope="module")
def transcripts(talks):
    """Of the engine, a slot a talk: i64[ticks, ROWS] each."""
    engine = build(batch=str(len(talks)))
    engine.open()
    sessions = [Session(PERSONAS[talk.persona], talk.voice) for talk in talks]
    for slot, session in enumerate(sessions):
        engine.recycle(slot, session)
    begins = [engine.prefill_ticks(session) for session in sessions]
    for tick in range(max(begins) + LIVE):
        pcm = np.zeros((len(talks), FRAME_SIZE), np.float32)
        for slot, talk in enumerate(talks):
            part = talk.pcm[max(0, tick - begins[slot]) * FRAME_SIZE :][:FRAME_SIZE]
            pcm[slot, : len(part)] = part
        engine.step(torch.from_numpy(pcm))
    made = [engine.lab.transcript(slot)[: begin + LIVE] for slot, begin in enumerate(begins)]
    engine.close()
    return made


def differing(model, talks, transcripts):
    """Sessions whose columns, as training lays them out and the model completes them, are not the engine's.

    The one before the voice's snapshot is left out: the engine's transcript has what the snapshot replaced.
    """
    replaced = model.config.voice_ticks - 1
    laid = converse(model, talks).columns
    return [
        index
        for index, (ours, engines) in enumerate(zip(laid, transcripts, strict=True))
        for ticks in [min(len(ours), len(engines))]
        if not torch.equal(*(torch.cat((part[:replaced], part[replaced + 1 : ticks])) for part in (ours, engines)))
    ]


def test_training_lays_sessions_out_as_the_engine_does(trained, talks, transcripts):
    assert differing(trained, talks, transcripts) == []


def test_a_layout_without_the_voices_snapshot_is_told_apart(trained, talks, transcripts, monkeypatch):
    monkeypatch.setattr(duplex_sequences, "restore", lambda *_: None)

    assert differing(trained, talks, transcripts) == list(range(len(talks)))


def test_a_layout_of_another_persona_is_told_apart(trained, talks, transcripts):
    others = [dataclasses.replace(talk, persona="pilot" if talk.persona == "keeper" else talk.persona) for talk in talks]

    assert differing(trained, others, transcripts) == [index for index, talk in enumerate(talks) if talk.persona == "keeper"]


def test_a_layout_of_another_voice_is_told_apart(trained, talks, transcripts):
    others = [dataclasses.replace(talk, voice=next(iter(VOICES))) for talk in talks]

    assert differing(trained, others, transcripts) == [index for index, talk in enumerate(talks) if talk.voice != others[index].voice]


def test_an_answer_begins_when_the_caller_has_been_silent(heard):
    talk = silent("pilot", "alto", LIVE)
    first = ask(talk, "view", heard.questions["view", "bob"], WAIT * FRAME_SIZE)
    spoken = tokens(ANSWERS["pilot", "view"])

    assert first == WAIT + len(heard.questions["view", "bob"]) // FRAME_SIZE - 1 + REPLY
    assert talk.text[first : first + len(spoken)].tolist() == spoken
    assert not np.delete(talk.text, slice(first, first + len(spoken))).any()


def test_what_is_audible_a_frame_longer_is_answered_a_frame_later(heard):
    question = heard.questions["view", "bob"]

    assert last_heard(0, np.pad(question, (FRAME_SIZE, 0))) == last_heard(0, question) + 1


@pytest.mark.parametrize(("start", "kept"), [(-2, [3.0, 4.0]), (1, [1.0, 2.0, 3.0]), (3, [1.0]), (9, [])])
def test_what_lies_outside_a_conversation_is_cut(start, kept):
    pcm = np.zeros(4, np.float32)
    put(pcm, start, np.arange(1, 5, dtype=np.float32))

    assert pcm[pcm > 0].tolist() == kept


def test_nothing_is_asked_once_the_persona_is_forgotten(heard):
    drawing = Drawing(heard, 1, remembered=60)
    ends = [first for _ in range(20) for first, *_ in drawing.conversation("baker", "bass", 150).answers]

    assert ends
    assert max(ends) < 60


def test_a_drawing_that_remembers_more_asks_later(heard):
    drawing = Drawing(heard, 1, remembered=150)

    assert max(first for _ in range(20) for first, *_ in drawing.conversation("baker", "bass", 150).answers) > 60


def learn_codec(heard, rate):
    """The last losses of a few steps."""
    codec = copy.deepcopy(DuplexModel.random(CONFIGS["tiny"], 0).codec).requires_grad_(True)
    return list(train_codec(codec, heard, seed=0, steps=6, rows=2, rate=rate))[-2:]


def learn_language(heard, codec, rate):
    """The last losses of a few steps, and which steps of the depth transformer have moved."""
    model = DuplexModel.random(CONFIGS["tiny"], 0)
    model.codec.load_state_dict(codec.state_dict())
    model.hear_prompts()
    before = copy.deepcopy(model.language.depth.steps)
    model.language.requires_grad_(True)
    losses = list(train_language(model, heard, seed=0, steps=4, rows=4, pool=6, rate=rate))[-2:]
    moved = [
        any(not torch.equal(ours, theirs) for ours, theirs in zip(new.parameters(), old.parameters(), strict=True))
        for new, old in zip(model.language.depth.steps, before, strict=True)
    ]
    return losses, moved


def test_the_codec_learns(heard):
    """On the same draws, beside a twin that may not."""
    assert max(learn_codec(heard, rate=2e-3)) < min(learn_codec(heard, rate=0.0))


def test_the_language_model_learns_all_but_the_drawn_codebooks(heard, trained):
    """On the same draws, beside a twin that may not."""
    learned, moved = learn_language(heard, trained.codec, rate=3e-3)
    still, unmoved = learn_language(heard, trained.codec, rate=0.0)

    assert max(learned) < min(still)
    assert moved == [True] * LEARNED + [False] * (len(moved) - LEARNED)
    assert not any(unmoved)


def test_trained_weights_give_every_answer(trained, talks):
    wanted = [ANSWERS[talk.persona, "name"] for talk in talks]
    result = score(trained, talks, list(wanted), wanted)

    assert (result.exact, result.of, result.wrong) == (len(talks), len(talks), [])
    assert min(result.text_least, result.audio_least) > 1


def test_random_weights_give_none(talks):
    model = DuplexModel.random(CONFIGS["tiny"], 0)
    model.voices = dict(zip(VOICES, model.voices.values(), strict=True))
    wanted = [ANSWERS[talk.persona, "name"] for talk in talks]

    assert score(model, talks, list(wanted), wanted).exact == 0


def test_a_score_names_what_was_not_said(trained, talks):
    wanted = [ANSWERS["baker", "name"]] * len(talks)
    result = score(trained, talks, [talk.persona for talk in talks], wanted)

    assert result.exact == len(VOICES)
    assert result.wrong == [(name, ANSWERS[name, "name"], wanted[0]) for name in PERSONAS if name != "baker" for _ in VOICES]


def test_silence_has_no_word(trained):
    quiet = [silent(persona, voice, LIVE) for persona, voice in product(PERSONAS, VOICES)]

    assert converse(trained, quiet).texts == [""] * len(quiet)
    assert not any((talk.text != PAD).any() for talk in quiet)
