"""Text as tokens, a word each: the vocabulary, the known personas and answers, read from the JSON that ships."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.names import unknown

PAD = 0
"""The token of a frame without text; its word is empty."""


class Words:
    """A word-level tokenizer; the index of a word is its token."""

    def __init__(self, words: Sequence[str]) -> None:
        """ValueError if the first word is not the empty one, or if a word is there twice or cannot be told from two."""
        if not words or words[PAD]:
            raise ValueError(f"the vocabulary begins with {list(words[:1])}: word {PAD} is the empty one, of a frame without text")
        bad = sorted({word for word in words[1:] if word.split() != [word]} | {word for word in words if words.count(word) > 1})
        if bad:
            raise ValueError(f"words {bad} of the vocabulary: each is there once, and has no space in it")
        self.words = tuple(words)
        self._tokens = {word: token for token, word in enumerate(words) if word}

    def tokens(self, text: str) -> tuple[int, ...]:
        """The text as tokens. ValueError that names a word which is not in the vocabulary."""
        missing = [word for word in text.split() if word not in self._tokens]
        if missing:
            raise ValueError(f"{unknown('word', missing[0], self._tokens)}; a persona is made of known words")
        return tuple(self._tokens[word] for word in text.split())

    def word(self, token: int) -> str | None:
        """The word of a token, None for PAD. Weights may know tokens that the vocabulary has no word for: those show their number."""
        if token == PAD:
            return None
        return self.words[token] if token < len(self.words) else f"w{token}"


@dataclass(frozen=True)
class Asked:
    """A recording, by its file's name, and what it is answered under a persona."""

    question: str
    persona: str | None
    answer: str


@dataclass(frozen=True)
class Table:
    """What the weights know, the defaults first. ValueError for a table without persona or voice, or a text with unknown words."""

    words: Words
    personas: tuple[str, ...]
    voices: tuple[str, ...]
    dialogues: tuple[Asked, ...]

    def __post_init__(self) -> None:
        if not self.personas or not self.voices:
            raise ValueError("a table of words needs at least one persona and one voice")
        for text in (*self.personas, *(asked.answer for asked in self.dialogues)):
            self.words.tokens(text)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Table:
        """Of `words`, `personas`, `voices` and `dialogues`, as JSON holds them. KeyError, TypeError or ValueError for what is no table."""
        dialogues = tuple(Asked(**dialogue) for dialogue in raw["dialogues"])
        return cls(Words(raw["words"]), tuple(raw["personas"]), tuple(raw["voices"]), dialogues)

    @classmethod
    def read(cls, path: Path) -> Table:
        """ValueError that names the file if it holds no table; OSError where it cannot be read."""
        try:
            return cls.parse(json.loads(path.read_text(encoding="utf-8")))
        except (KeyError, TypeError, ValueError) as wrong:
            raise ValueError(f"{path}: {wrong!r}; it holds words, personas, voices and dialogues") from wrong
