"""Scripts are values: equal ones are one key, and what one does that another does not is said in words."""

from harness.duplex.protocol import Session
from harness.duplex.script import Pause, Recycle, Script
from harness.duplex.sounds import Noise, Silence, Tone

SCRIPT = Script(20, (Tone(0), Tone(1)))


def test_equal_scripts_are_one_key() -> None:
    once, again = (Script(20, (Tone(0), Tone(1))).at(10, Recycle(1, Session(seed=3))) for _ in range(2))

    assert {once: "kept"}[again] == "kept"
    assert once != SCRIPT.at(11, Recycle(1, Session(seed=3)))
    assert once != SCRIPT.at(10, Recycle(1, Session(seed=4)))
    assert SCRIPT.hearing({1: Noise(1)}) != SCRIPT.hearing({1: Noise(2)})


def test_events_come_in_their_order() -> None:
    script = SCRIPT.at(3, Pause(0, 2)).at(3, Recycle(1))

    assert script.on(3) == [Pause(0, 2), Recycle(1)]
    assert script.on(2) == []


def test_what_is_done_is_said() -> None:
    touched = SCRIPT.hearing({0: Silence()}).at(10, Recycle(1), Recycle(0, Session(voice="low"), Noise(7)))

    said = "slot 0 hears silence; slot 1 recycled at tick 10; slot 0 recycled (voice 'low', hearing noise 7) at tick 10"
    assert touched.against(SCRIPT) == said
    assert touched.against(touched) == ""
