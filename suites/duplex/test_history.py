"""What a slot says follows from all that its session was given: the caches, rings and carries hold that history, and no other."""

import torch

from fixtures.duplex import Stage
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.duplex.driver import Played
from harness.duplex.protocol import Session
from harness.duplex.script import Recycle
from harness.duplex.sounds import Noise
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=3, suite="duplex-cpu")
register_cuda_ci(est_time=30, suite="duplex-h100")


@claim("duplex.history.one_pass", source="issue; FAULTS a-conv-carry-dropped, a-delay-line-phase: a stream against one pass")
@requires(Duplex.LAB)
@requires(Duplex.TOKENS)
def test_one_pass(stage: Stage, workload: Workload) -> None:
    """Tick by tick, a slot decides what one pass over its whole history decides, fresh from open or recycled."""
    script = stage.script().at(workload.act_at, Recycle(workload.recycled))
    check_one_pass(stage, stage.play(script))


@claim("duplex.history.one_pass_wrapped", source="FAULTS a-ring-wrap-wrong, a-window-not-enforced: moshi#148, transformers#43971")
@requires(Duplex.LAB)
@requires(Duplex.TOKENS)
def test_one_pass_wrapped(stage: Stage, wrapped: int) -> None:
    """When a slot has talked for three times its window, it still decides what one pass over the same window decides."""
    check_one_pass(stage, stage.play(stage.script(at=3 * wrapped)))


@claim("duplex.history.sound", source="FAULTS a-conv-carry-dropped: 0xShug0/audio.cpp#622: clicks where a stream is decoded in pieces")
@requires(Duplex.LAB)
def test_sound(stage: Stage, workload: Workload) -> None:
    """What a slot is heard to say is what one pass over all its frames decodes to, fresh from open or recycled."""
    script = stage.script().at(workload.act_at, Recycle(workload.recycled))
    run = stage.play(script)
    stage.judge.stimulus = f"slot {workload.recycled} recycled at tick {workload.act_at}"
    for slot in sorted({workload.recycled, stage.slots[-1]}):
        sound, unsure = stage.engine.lab.sound(slot)
        heard = torch.stack([frame.audio for frame in run.live(slot, epoch=run.frames[-1][slot].epoch)]).double()
        stage.judge.equal(heard.shape, sound.shape, f"frames and samples of slot {slot}", source="its tokens")
        apart = (heard - sound).abs().amax(1)
        worst = int(apart.argmax())
        got = f"frame {worst} of slot {slot} differs from one pass by {float(apart[worst]):.2e}"
        stage.judge.demand(bool(apart[worst] <= unsure), got=got, expected=f"at most {unsure:.2e}, which is rounding")


@claim("duplex.history.caller", source="the twin of isolation: what the caller says reaches the slot's own output")
def test_caller(stage: Stage, workload: Workload) -> None:
    """What a caller says is heard: another sound gives another output in the caller's own slot."""
    untouched, slot = stage.script(), workload.recycled
    before, [after] = stage.controlled(untouched, untouched.hearing({slot: Noise(slot)}))
    check_heard(stage, after, before, slot)


@claim("duplex.history.voice", source="the twin of neighbours.voice and replay.voice_forgotten: the voice has an effect")
@requires(Duplex.VOICE)
def test_voice(stage: Stage) -> None:
    """A session's voice is heard in its own slot: another voice gives another output."""
    check_session_heard(stage, Session(voice=stage.engine.voices[1]))


@claim("duplex.history.persona", source="the twin of neighbours.persona and replay.persona_forgotten: the persona has an effect")
@requires(Duplex.PERSONA)
def test_persona(stage: Stage) -> None:
    """A session's persona is heard in its own slot: another persona gives another output."""
    check_session_heard(stage, Session(persona=stage.engine.personas[1]))


@claim(
    "duplex.history.seed",
    source="the twin of neighbours.seed: sampling has an effect; protocol: None is greedy",
)
@requires(Duplex.SEED)
def test_seed(stage: Stage) -> None:
    """A session's draws are heard in its own slot: with a seed, 0 too, it gives another output than the greedy one."""
    check_session_heard(stage, Session(seed=0))


def check_one_pass(stage: Stage, run: Played) -> None:
    """Every slot's transcript is what one pass decides, and holds the tokens that the slot's frames gave."""
    engine, judge = stage.engine, stage.judge
    judge.stimulus = "; ".join(f"{event} at tick {tick}" for tick, event in run.script.events)
    for slot in sorted({stage.workload.recycled, stage.slots[-1]}):
        decided = engine.lab.transcript(slot)
        judge.same_bits(engine.lab.one_pass(slot), decided, f"one pass over slot {slot}", source="its transcript", axes=("tick", "stream"))
        given = torch.stack([frame.tokens for frame in run.live(slot, epoch=run.frames[-1][slot].epoch)])
        for stream in range(engine.streams):
            # The last frame was complete on the last tick; its row of this stream was decided so many ticks before.
            ends = [len(decided) - behind for behind in range(engine.delay + 1)]
            found = any(torch.equal(decided[end - len(given) : end, stream], given[:, stream]) for end in ends)
            judge.demand(found, got=f"stream {stream} of slot {slot} was decided otherwise than it was given", expected="one and the same")


def check_session_heard(stage: Stage, session: Session) -> None:
    """The slot that is recycled for it gives another output than one recycled for the default session."""
    slot, at = stage.workload.recycled, stage.workload.act_at
    script = stage.script(session=session)
    before, [after] = stage.controlled(script.at(at, Recycle(slot)), script.at(at, Recycle(slot, session)))
    check_heard(stage, after, before, slot)


def check_heard(stage: Stage, after: Played, before: Played, slot: int) -> None:
    """The slot's conversations are not the same bits."""
    stage.judge.stimulus = after.script.against(before.script)
    mine, theirs = (torch.stack([frame.audio for frame in run.live(slot, epoch=run.frames[-1][slot].epoch)]) for run in (after, before))
    count = min(len(mine), len(theirs))
    changed = not torch.equal(mine[:count], theirs[:count])
    stage.judge.taken(count, f"frames of slot {slot} in both runs")
    stage.judge.demand(changed, got=f"slot {slot} gave the same {count} frames of audio", expected="another output")
