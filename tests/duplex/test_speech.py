"""What ships is what the table says: recordings, words, personas, voices, answers."""

from __future__ import annotations

import json
import wave
from itertools import chain

import numpy as np
import pytest

from fixtures import duplex_speech, duplex_table
from fixtures.duplex_conversations import last_heard, read
from fixtures.duplex_speech import PEAK, TAIL, framed, sounds, table
from fixtures.duplex_table import ANSWERS, CALLERS, DATA, FOREIGN_SPEECH, PAD, PERSONAS, QUESTIONS, WORDS_AT_MOST, tokens, words
from harness.duplex.reference.config import CONFIGS, FRAME_SIZE, SAMPLE_RATE
from harness.duplex.workload import Workload

ASKED = [f"{question}-{caller}.wav" for question in QUESTIONS for caller in CALLERS]
FOREIGN = [f"foreign-{name}.wav" for name in (*FOREIGN_SPEECH, *sounds())]
MEGABYTES_AT_MOST = 4


def test_every_recording_of_the_table_ships_and_no_other():
    assert sorted(path.name for path in DATA.glob("*.wav")) == sorted([*ASKED, *FOREIGN])


def test_the_recordings_are_small():
    assert sum(path.stat().st_size for path in DATA.glob("*.wav")) < MEGABYTES_AT_MOST * 1024**2


@pytest.mark.parametrize("name", [*ASKED, *FOREIGN])
def test_a_recording_is_mono_16_bit_24_khz_of_whole_frames(name):
    with wave.open(str(DATA / name)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, SAMPLE_RATE)
        assert file.getnframes() % FRAME_SIZE == 0


@pytest.mark.parametrize("name", [*ASKED, *FOREIGN])
def test_a_recording_is_audible_and_ends_in_silence_within_its_last_frame(name):
    pcm = read(DATA / name)

    assert np.abs(pcm).max() == pytest.approx(PEAK, abs=2**-14)
    assert not pcm[-TAIL:].any()
    assert last_heard(0, pcm) == len(pcm) // FRAME_SIZE - 1


def test_no_two_recordings_are_the_same():
    assert len({(DATA / name).read_bytes() for name in [*ASKED, *FOREIGN]}) == len(ASKED) + len(FOREIGN)


def test_the_engines_table_is_this_table():
    assert json.loads((DATA / "tiny.json").read_text(encoding="utf-8")) == table([*ASKED, *FOREIGN])


def test_the_table_changes_with_what_it_is_made_of(monkeypatch):
    monkeypatch.setitem(duplex_speech.ANSWERS, ("keeper", "name"), "they call me Juno")

    assert json.loads((DATA / "tiny.json").read_text(encoding="utf-8")) != table([*ASKED, *FOREIGN])


def test_every_persona_answers_every_question_in_its_own_words():
    assert set(ANSWERS) == {(persona, question) for persona in PERSONAS for question in QUESTIONS}
    assert len(set(ANSWERS.values())) == len(ANSWERS)


@pytest.mark.parametrize("answer", ANSWERS.values())
def test_an_answer_has_the_letters_that_the_seed_demands(answer):
    assert sum(letter.isalpha() for letter in answer) >= Workload().letters


def test_the_words_are_tokens_of_the_tiny_model():
    assert words()[PAD] == ""
    assert len(words()) <= WORDS_AT_MOST < CONFIGS["tiny"].text_card
    assert [words()[token] for text in (*PERSONAS.values(), *ANSWERS.values()) for token in tokens(text)] == list(
        chain.from_iterable(text.split() for text in (*PERSONAS.values(), *ANSWERS.values()))
    )


def test_an_unknown_word_has_no_token():
    with pytest.raises(KeyError, match="submarine"):
        tokens("you keep the submarine")


def test_more_words_than_fit_are_an_error_that_names_the_table(monkeypatch):
    monkeypatch.setitem(duplex_table.PERSONAS, "endless", " ".join(f"word{number}" for number in range(WORDS_AT_MOST)))

    with pytest.raises(ValueError, match=r"duplex_table\.py"):
        words()


def test_what_is_framed_is_cut_to_what_is_audible():
    sound = np.pad(np.ones(3000, np.float32), (5000, 9000))

    assert len(framed(sound)) == 2 * FRAME_SIZE
    assert np.flatnonzero(framed(sound)).tolist() == list(range(2 * FRAME_SIZE - TAIL - 3000, 2 * FRAME_SIZE - TAIL))


def test_a_recording_of_another_rate_is_refused(tmp_path):
    import sphn

    sphn.write_wav(str(tmp_path / "slow.wav"), np.zeros(100, np.float32), 22_050)

    with pytest.raises(ValueError, match="22050"):
        read(tmp_path / "slow.wav")
