"""Calls that ask for what there is not are refused, and nothing has moved."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.driver import Driver
from harness.duplex.protocol import Phase, Session
from harness.duplex.script import Leave, Script
from harness.duplex.wires import TransposingEngine
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="duplex-cpu")
register_cuda_ci(est_time=20, suite="duplex-h100")

BuildStage = Callable[..., Stage]
Call = Callable[[], Any]
MALFORMED = (ValueError, TypeError)
"""A value that is not of the type named may be refused as either."""
UNKNOWN = "nobody has called anything by this name"


@claim("duplex.input.shape", source="protocol: step, ValueError for a wrong shape or dtype; then no slot has moved")
def test_shape(stage: Stage) -> None:
    """Samples of another shape or dtype, or in no tensor, are refused, and no slot has moved."""
    slots, size, step = stage.engine.slots, stage.engine.frame_size, stage.engine.step
    good = torch.full((slots, size), 0.3)
    bad = {
        "a frame that is one sample short": good[:, 1:],
        "a frame that is one sample long": torch.full((slots, size + 1), 0.3),
        "one row too few": good[1:],
        "one row too many": torch.full((slots + 1, size), 0.3),
        "rows and samples exchanged": good.T,
        "all in one row": good.flatten(),
        "channels": good[:, None],
        "no samples": good[:, :0],
        "float64": good.double(),
        "float16": good.half(),
        "int16": (good * 2**15).to(torch.int16),
        "a list": good.tolist(),
        "nothing": None,
    }
    _check_unmoved(stage, {f"step with {what}": (lambda pcm=pcm: step(pcm)) for what, pcm in bad.items()})


@claim("duplex.input.layout", source="protocol: f32[slots, frame_size], whatever its strides")
def test_layout(stage: Stage) -> None:
    """Samples are heard by their values, however they lie in memory."""
    script = Script(stage.engine.delay + 4, tuple(map(stage.tone, stage.slots)))
    untouched = stage.play(script)
    by_columns = Driver(TransposingEngine(stage.engine), script).play()

    stage.same(by_columns, untouched, stage.slots, source="the same samples, row by row")
    stage.judge.taken(len(untouched.live(0)), "frames of slot 0")


@claim("duplex.input.live", source="protocol: step, ValueError for a wrong length")
@requires(Duplex.PAUSE)
def test_live(stage: Stage) -> None:
    """Pauses for more or fewer slots than there are are refused, and no slot has moved."""
    pcm, slots = _loud(stage), stage.engine.slots
    bad = {"no slot": [], "one slot too few": [False] * (slots - 1), "one slot too many": [False] * (slots + 1)}
    _check_unmoved(stage, {f"live for {what}": (lambda live=live: stage.engine.step(pcm, live)) for what, live in bad.items()})


@claim("duplex.input.valid_samples", source="protocol: step; a length that is not within the frame reads what is not the slot's")
@requires(Duplex.VALID_SAMPLES)
def test_valid_samples(stage: Stage) -> None:
    """Valid samples for another number of slots, below 0 or beyond the frame are refused, and no slot has moved."""
    pcm, slots, size = _loud(stage), stage.engine.slots, stage.engine.frame_size
    bad = {
        "of no slot": [],
        "of one slot too few": [size] * (slots - 1),
        "of one slot too many": [size] * (slots + 1),
        "-1 of the last slot": [*[size] * (slots - 1), -1],
        "one more than the frame": [size + 1, *[size] * (slots - 1)],
    }
    calls = {f"valid_samples {what}": (lambda valid=valid: stage.engine.step(pcm, None, valid)) for what, valid in bad.items()}
    _check_unmoved(stage, calls)


@claim("duplex.input.slot", source="vllm#43810, #43869: index -1 is a real row; protocol: ValueError for a slot that there is not")
def test_slot(stage: Stage) -> None:
    """A recycle of a slot that there is not is refused, -1 too, and no slot has moved."""
    _check_unmoved(stage, _on_bad_slots(stage, lambda slot: stage.engine.recycle(slot, Session()), "recycle"))


@claim("duplex.input.slot_left", source="vllm#43810: index -1 is a real row")
@requires(Duplex.ADMISSION)
def test_slot_left(stage: Stage) -> None:
    """A release of a slot that there is not is refused, -1 too, and no slot has moved."""
    _check_unmoved(stage, _on_bad_slots(stage, stage.engine.release, "release"))


@claim("duplex.input.slot_finished", source="vllm#43810: index -1 is a real row")
@requires(Duplex.FINISH)
def test_slot_finished(stage: Stage) -> None:
    """The end of input of a slot that there is not is refused, -1 too, and no slot has moved."""
    _check_unmoved(stage, _on_bad_slots(stage, stage.engine.finish, "finish"))


@claim("duplex.input.slot_cancelled", source="vllm#43810: index -1 is a real row")
@requires(Duplex.CANCEL)
def test_slot_cancelled(stage: Stage) -> None:
    """Cancelling a slot that there is not is refused, -1 too, and no slot has moved."""
    _check_unmoved(stage, _on_bad_slots(stage, stage.engine.cancel, "cancel"))


@claim("duplex.input.persona", source="protocol: recycle, ValueError for a persona that the engine does not know; then nothing has changed")
@requires(Duplex.PERSONA_NAMES)
def test_persona(stage: Stage) -> None:
    """A recycle for an unknown persona is refused, and the occupant goes on as if it had not been tried."""
    _check_unmoved(stage, {"an unknown persona": lambda: stage.engine.recycle(0, Session(persona=UNKNOWN))})


@claim("duplex.input.voice", source="protocol: recycle, ValueError for a voice that the engine does not know; then nothing has changed")
@requires(Duplex.VOICE)
def test_voice(stage: Stage) -> None:
    """A recycle for an unknown voice is refused, and the occupant goes on as if it had not been tried."""
    _check_unmoved(stage, {"an unknown voice": lambda: stage.engine.recycle(0, Session(voice=UNKNOWN))})


@claim("duplex.input.admitted", source="protocol: admit; vllm-omni#6170: what a refused session took is not given back")
@requires(Duplex.ADMISSION)
@requires(Duplex.VOICE)
def test_admitted(stage: Stage, judge: Judge) -> None:
    """An admission for an unknown voice is refused, and takes no slot."""
    engine = stage.engine
    engine.open()
    engine.release(0)
    before = dict(engine.usage())
    judge.refused(lambda: engine.admit(Session(voice=UNKNOWN)), "an unknown voice", MALFORMED)
    judge.equal(dict(engine.usage()), before, "what the engine holds after the refusal")
    judge.equal(engine.admit(Session()), 0, "the slot of the next session")


@claim("duplex.input.while_ending", source="protocol: step, ValueError for a wrong shape; then no slot has moved")
@requires(Duplex.FINISH)
def test_while_ending(stage: Stage) -> None:
    """A step that is refused while a slot is drained swallows none of its last frames, and not its last word."""
    at = stage.engine.delay + 1
    script = Script(at + stage.engine.delay + 3, tuple(map(stage.tone, stage.slots))).at(at, Leave(0, "finish"))
    untouched, driver = stage.play(script), Driver(stage.engine, script)
    stage.engine.open()
    for tick in range(script.ticks):
        for event in script.on(tick):
            driver.do(event)
        if tick >= at:
            stage.judge.refused(lambda: stage.engine.step(_loud(stage)[:, 1:]), "step with a frame that is one sample short", MALFORMED)
        driver.step()

    stage.same(driver.played, untouched, stage.slots, source="a run without the call")
    stage.judge.taken(sum(frame.phase is Phase.DRAINED for frame in untouched.of(0)), "the last word of slot 0")


@claim("duplex.input.full", source="vllm-omni#6170, vllm#44933: over-admission ends the engine; protocol: RuntimeError if none is free")
@requires(Duplex.ADMISSION)
def test_full(stage: Stage) -> None:
    """A full engine refuses to admit, and loses nothing."""
    _check_unmoved(stage, {"admit to a full engine": lambda: stage.engine.admit(Session())}, kinds=(RuntimeError,))


@claim("duplex.input.closed", source="protocol: step raises RuntimeError before open and after close; close may be called twice")
def test_closed(build_stage: BuildStage, judge: Judge) -> None:
    """A step before `open` and after `close` is refused, and an engine may be closed twice."""
    stage = build_stage()
    pcm = _loud(stage)
    judge.refused(lambda: stage.engine.step(pcm), "step before open", (RuntimeError,))
    stage.engine.open()
    judge.equal(len(stage.engine.step(pcm)), stage.engine.slots, "frames of a step after open")
    stage.engine.close()
    judge.refused(lambda: stage.engine.step(pcm), "step after close", (RuntimeError,))
    stage.engine.close()


def _loud(stage: Stage) -> torch.Tensor:
    """A frame that no slot is meant to hear."""
    return torch.full((stage.engine.slots, stage.engine.frame_size), 0.3)


def _on_bad_slots(stage: Stage, call: Callable[[int], Any], name: str) -> dict[str, Call]:
    return {f"{name}({slot})": (lambda slot=slot: call(slot)) for slot in (-1, stage.engine.slots, 10**6)}


def _check_unmoved(stage: Stage, calls: dict[str, Call], kinds: Sequence[type[Exception]] = MALFORMED) -> None:
    """Each call is refused between two ticks, and all slots give what they give in a run without them."""
    __tracebackhide__ = True
    script = Script(stage.engine.delay + len(calls) + 3, tuple(map(stage.tone, stage.slots)))
    untouched = stage.play(script)
    driver, waiting = Driver(stage.engine, script), list(calls.items())
    stage.engine.open()
    for tick in range(script.ticks):
        if tick > stage.engine.delay and waiting:
            what, call = waiting.pop(0)
            stage.judge.refused(call, what, tuple(kinds))
        driver.step()
    assert not waiting

    stage.same(driver.played, untouched, stage.slots, source="a run without the call")
    stage.judge.taken(len(untouched.live(0)), "frames of slot 0")
