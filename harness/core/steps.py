"""Steps of a schedule as text that a person reads and a replay parses: a verb, then a word for each field of a frozen dataclass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_type_hints

from harness.core.names import unknown


class Verb(Protocol):
    """What a kind of step must have, beside fields that are whole numbers, texts or members of an enum of texts."""

    verb: ClassVar[str]


Step = TypeVar("Step", bound=Verb)


def step_text(step: Verb) -> str:
    """`recycle 1 voice`."""
    values = [getattr(step, each.name) for each in fields(step)]  # type: ignore[arg-type]
    return " ".join([step.verb, *(value.value if isinstance(value, Enum) else str(value) for value in values)])


@dataclass(frozen=True)
class Steps(Generic[Step]):
    """The steps of one kind of schedule.

    `least`: field to the least number that it takes, 1 where none is named. `called`: field to what an error calls it, where that is not a
    number or a list of words. `name`: what a field that is a text must match.
    """

    kinds: tuple[type[Step], ...]
    least: Mapping[str, int] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)
    name: str = "[a-z][a-z0-9]*"

    def parse(self, text: str) -> tuple[Step, ...]:
        """The steps of a text, which semicolons keep apart. ValueError names the one that cannot be read, and what could stand there."""
        return tuple(self._step(words) for step in text.split(";") if (words := step.split()))

    def _step(self, words: list[str]) -> Step:
        verb, given = words[0], words[1:]
        kinds = {kind.verb: kind for kind in self.kinds}
        if verb not in kinds:
            raise ValueError(f"{' '.join(words)!r}: {unknown('step', verb, kinds)}")
        kind: Any = kinds[verb]
        names = [each.name for each in fields(kind)]
        if len(names) != len(given):
            raise ValueError(f"{' '.join(words)!r}: write {' '.join([verb, *(name.upper() for name in names)])}")
        hints = get_type_hints(kind)
        return kind(**{name: self._word(name, hints[name], word, words) for name, word in zip(names, given, strict=True)})

    def _word(self, name: str, kind: type, word: str, words: list[str]) -> object:
        if issubclass(kind, Enum):
            if word in (member.value for member in kind):
                return kind(word)
            wanted = " or ".join(member.value for member in kind)
        elif kind is int:
            least = self.least.get(name, 1)
            # ASCII digits alone: int() takes those of every script.
            if re.fullmatch("[0-9]+", word) and int(word) >= least:
                return int(word)
            wanted = "a number above 0" if least == 1 else f"a number from {least} on"
        else:
            if re.fullmatch(self.name, word):
                return word
            wanted = "a name"
        raise ValueError(f"{' '.join(words)!r}: {word!r} stands where {self.called.get(name, wanted)} should")
