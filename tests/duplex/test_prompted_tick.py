"""A tick in which all are in prefill leaves what the whole tick leaves: nothing that it spares would have been heard, decided or said."""

import torch

from harness.duplex.protocol import Phase, Session
from harness.duplex.reference.language import LanguageModel
from harness.duplex.reference.tick import Tick
from tests.duplex.lockstep import build, same, sound

TALK = 4


def lived(monkeypatch, prompt):
    """What every slot gave and decided, with `prompt` for the ticks in which all are in prefill, at boot and from a recycle of all on."""
    monkeypatch.setattr(Tick, "prompt", prompt)
    engine = build()
    engine.open()
    frames = [engine.step(sound(tick, tick, tick, tick)) for tick in range(TALK)]
    sessions = [Session(), Session(persona=engine.personas[-1]), Session(voice=engine.voices[-1]), Session(seed=3)]
    for slot, session in enumerate(sessions):
        engine.recycle(slot, session)
    later = max(map(engine.prefill_ticks, sessions)) + TALK
    frames += [engine.step(sound(tick, tick, tick, tick)) for tick in range(later)]
    decided = [engine.lab.transcript(slot) for slot in range(engine.slots)]
    engine.close()
    return [frame for given in frames for frame in given if frame.phase is Phase.LIVE], torch.stack(decided)


def test_a_prompted_tick_is_the_whole_tick(monkeypatch):
    spared = lived(monkeypatch, Tick.prompt)
    whole = lived(monkeypatch, Tick.__call__)

    assert torch.equal(spared[1], whole[1])
    assert same(spared[0], whole[0])


def test_a_prompt_that_the_state_does_not_follow_is_heard(monkeypatch):
    """The twin: what the language model was told in the prompt shows in the conversation behind it."""
    prompt = Tick.prompt
    whole = lived(monkeypatch, Tick.__call__)
    monkeypatch.setattr(LanguageModel, "follow", lambda *_: None)

    assert not same(lived(monkeypatch, prompt)[0], whole[0])
