"""The word-level tokenizer and the table that ships."""

import json

import pytest

from harness.duplex.reference.weights import DATA
from harness.duplex.reference.words import PAD, Table, Words

WORDS = ["", "the", "north", "cape"]
TABLE = {
    "words": WORDS,
    "personas": ["the cape"],
    "voices": ["alto"],
    "dialogues": [{"question": "a.wav", "persona": None, "answer": "north"}],
}


def test_a_text_is_its_words():
    """Whatever the space between them."""
    words = Words(WORDS)

    assert words.tokens("the  north\ncape") == (1, 2, 3)
    assert [words.word(token) for token in (1, 2, 3)] == ["the", "north", "cape"]
    assert words.tokens("") == ()


def test_a_frame_without_text_has_no_word():
    assert Words(WORDS).word(PAD) is None


def test_a_token_without_a_word_shows_its_number():
    """Random weights decide such tokens."""
    assert Words(WORDS).word(4) == "w4"


def test_an_unknown_word_is_named():
    with pytest.raises(ValueError, match=r"'nort'.*north"):
        Words(WORDS).tokens("the nort cape")


@pytest.mark.parametrize("words", [[], ["the"], ["", "the", "the"], ["", "the cape"], ["", "a", ""]])
def test_a_vocabulary_that_cannot_be_told_apart_is_refused(words):
    with pytest.raises(ValueError, match=r"word"):
        Words(words)


def test_the_table_that_ships_is_read():
    table = Table.read(DATA / "tiny.json")

    assert table.personas
    assert table.voices
    assert all((DATA / asked.question).is_file() for asked in table.dialogues)


@pytest.mark.parametrize(
    "broken",
    [
        {"words": ["the"]},
        {"personas": []},
        {"personas": ["the moon"]},
        {"voices": []},
        {"dialogues": [{"question": "a.wav"}]},
        {"dialogues": [{"question": "a.wav", "persona": None, "answer": "moon"}]},
    ],
)
def test_a_broken_table_names_its_file(tmp_path, broken):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TABLE), encoding="utf-8")
    assert Table.read(path).voices == ("alto",)

    path.write_text(json.dumps(TABLE | broken), encoding="utf-8")
    with pytest.raises(ValueError, match=r"tiny\.json"):
        Table.read(path)
