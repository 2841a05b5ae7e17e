"""The text of a schedule's steps: what it says is read, and what it cannot say is refused by name."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import pytest

from harness.core.steps import Steps, step_text


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Paint:
    verb: ClassVar[str] = "paint"
    wall: str
    colour: Colour
    coats: int


@dataclass(frozen=True)
class Rest:
    verb: ClassVar[str] = "rest"


STEPS = Steps((Paint, Rest), least={"coats": 0}, called={"wall": "a wall's name"})


def test_text_and_back():
    steps = (Paint("a", Colour.BLUE, 0), Rest(), Paint("b2", Colour.RED, 12))

    assert STEPS.parse("; ".join(map(step_text, steps))) == steps
    assert STEPS.parse(" ;rest;;  rest ") == (Rest(), Rest())
    assert STEPS.parse("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pain a red 1", "'pain a red 1': unknown step 'pain'"),
        ("paint a red", "'paint a red': write paint WALL COLOUR COATS"),
        ("rest 1", "'rest 1': write rest"),
        ("paint A red 1", "'A' stands where a wall's name should"),
        ("paint a green 1", "'green' stands where red or blue should"),
        ("paint a red -1", "'-1' stands where a number from 0 on should"),
        ("paint a red \u0663", "'\u0663' stands where a number from 0 on should"),
    ],
)
def test_unreadable(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        STEPS.parse(f"rest; {text}")
