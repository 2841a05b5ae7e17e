"""The system prompt as steps."""

import pytest

from harness.duplex.protocol import Session
from harness.duplex.reference.prompt import NO_EMBEDDING, Prompter
from harness.duplex.reference.words import Words


@pytest.fixture
def prompter():
    return Prompter(Words(["", "you", "bake", "fly"]), ["you bake", "you fly you"], ["alto", "bass"], voice_ticks=3, silence_ticks=2)


def test_a_prompt_is_voice_silence_persona_silence(prompter):
    prompt = prompter.prompt(Session(persona="you fly you"))

    assert prompt.texts == (0, 0, 0, 0, 0, 1, 3, 1, 0, 0)
    assert len(prompt) == 10


def test_the_voice_is_fed_over_its_ticks_alone(prompter):
    prompt = prompter.prompt(Session(voice="bass"))

    assert [prompt.embedding(position) for position in range(5)] == [3, 4, 5, NO_EMBEDDING, NO_EMBEDDING]


def test_the_default_is_resolved_for_each_session(prompter):
    """Also after a session that asked for something else."""
    before = prompter.prompt(Session())
    other = prompter.prompt(Session(persona="you fly you", voice="bass"))

    assert prompter.prompt(Session()) == before == prompter.prompt(Session(persona="you bake", voice="alto"))
    assert other != before


@pytest.mark.parametrize(("session", "named"), [(Session(persona="you swim"), "swim"), (Session(voice="bas"), "bass")])
def test_what_is_unknown_is_named(prompter, session, named):
    with pytest.raises(ValueError, match=named):
        prompter.prompt(session)
