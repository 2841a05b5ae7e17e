"""A slot that was recycled for a new caller hears the caller's question, and answers."""

from collections.abc import Sequence
from dataclasses import replace

from fixtures.duplex import Stage
from fixtures.duplex_dialogue import conversations, question
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.protocol import Dialogue, Phase, Session
from harness.duplex.script import Hear, Pause, Recycle, Script
from harness.duplex.sounds import Recording, Silence
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=6, suite="duplex-cpu")
register_cuda_ci(est_time=60, suite="duplex-h100")


@claim("duplex.conversation.letters", source="spec 1.3: at least 15 letters within 120 ticks of the question")
@requires(Duplex.TEXT)
def test_letters(stage: Stage, judge: Judge, workload: Workload) -> None:
    """A slot that was recycled while all others hear silence answers a spoken question in text."""
    engine, asked, slot = stage.engine, question(stage), workload.recycled
    heard = asked.ticks(engine.sample_rate, engine.frame_size)
    ticks = workload.silent_ticks + engine.prefill_ticks(Session()) + heard + workload.answer_ticks
    script = Script(ticks, (Silence(),) * engine.slots).at(workload.silent_ticks, Recycle(slot, Session(), asked))
    text = stage.play(script).text(slot, epoch=1)

    letters = sum(map(str.isalpha, text))
    print(f"{asked}: {text!r}")
    judge.figure("letters", letters, "letters", workload.letters)
    judge.demand(letters >= workload.letters, got=f"{letters} letters, of {text!r}", expected=f"at least {workload.letters}")


@claim("duplex.conversation.known", source="issue: the recycled slot gives the known answer of its persona")
@requires(Duplex.KNOWN_ANSWERS)
def test_known(stage: Stage, dialogues: Sequence[Dialogue]) -> None:
    """A recycled slot gives exactly the known answer of its persona to each recording, in each slot, while the others converse."""
    _check_answers(stage, [dialogue for dialogue in dialogues if dialogue.answer])


@claim("duplex.conversation.foreign", source="issue: a foreign sound gets no answer")
@requires(Duplex.KNOWN_ANSWERS)
def test_foreign(stage: Stage, dialogues: Sequence[Dialogue]) -> None:
    """A recycled slot says nothing to a sound that its weights are known not to answer."""
    _check_answers(stage, [dialogue for dialogue in dialogues if not dialogue.answer])


@claim("duplex.conversation.silence", source="issue: silence gets no answer")
@requires(Duplex.KNOWN_ANSWERS)
def test_silence(stage: Stage, judge: Judge, dialogues: Sequence[Dialogue]) -> None:
    """A slot that hears silence says nothing, beside one that is asked and answers."""
    first = next(dialogue for dialogue in dialogues if dialogue.answer)
    script, [asked] = conversations(stage, [first])
    script = script.at(0, *(Recycle(slot, Session(persona=first.persona)) for slot in stage.others(asked.slot)))
    played = stage.play(script)

    judge.equal(played.text(asked.slot, epoch=asked.epoch), first.answer, f"text of {asked}", source="what the weights are known to say")
    for slot in stage.others(asked.slot):
        judge.equal(played.text(slot, epoch=1), "", f"text of slot {slot}, which hears silence")


@claim("duplex.conversation.paused", source="issue: a paused twin gives no answer; protocol: as if the tick had not been")
@requires(Duplex.KNOWN_ANSWERS)
@requires(Duplex.PAUSE)
def test_paused(stage: Stage, judge: Judge, dialogues: Sequence[Dialogue]) -> None:
    """A slot that is left out while its caller asks, and goes on after it, has heard no question."""
    engine = stage.engine
    first = next(dialogue for dialogue in dialogues if dialogue.answer)
    script, [asked] = conversations(stage, [first])
    begins, heard = (
        engine.prefill_ticks(Session(persona=first.persona)),
        Recording(first.question).ticks(engine.sample_rate, engine.frame_size),
    )
    [twin, *_] = stage.others(asked.slot)
    script = replace(script, ticks=script.ticks + heard).at(0, Recycle(twin, Session(persona=first.persona)))
    script = script.at(begins, Pause(twin, heard))
    for tick in range(heard):
        # Its own clock stands still: what lies in its row is the question all the same.
        script = script.at(begins + tick, Hear(twin, Recording(first.question, start=-tick)))
    played = stage.play(script.at(begins + heard, Hear(twin, Silence())))

    judge.equal(played.text(asked.slot, epoch=asked.epoch), first.answer, f"text of {asked}", source="what the weights are known to say")
    judge.taken(len(played.live(twin, epoch=1)), f"frames of slot {twin} after its pause")
    judge.equal(played.text(twin, epoch=1), "", f"text of slot {twin}, which was left out during the question")


@claim("duplex.conversation.interrupted", source="protocol: it goes on as if that tick had not been; here, in the middle of what it says")
@requires(Duplex.KNOWN_ANSWERS)
@requires(Duplex.PAUSE)
def test_interrupted(stage: Stage, judge: Judge, dialogues: Sequence[Dialogue]) -> None:
    """A slot that is paused between two words of its answer gives the whole answer, piece by piece."""
    first = next(dialogue for dialogue in dialogues if dialogue.answer)
    script, [asked] = conversations(stage, [first])
    spoken = [tick for tick, frame in enumerate(stage.kept(script).of(asked.slot)) if frame.text]
    judge.taken(len(spoken) - 1, f"words behind the first, of {asked}")
    pauses = [Pause(asked.slot, 1) for _ in spoken[1:]]
    interrupted = replace(script, ticks=script.ticks + len(pauses))
    for number, (tick, pause) in enumerate(zip(spoken[1:], pauses, strict=True)):
        # Each pause moves the words behind it.
        interrupted = interrupted.at(tick + number, pause)
    played = stage.play(interrupted)

    judge.equal(sum(frame.phase is Phase.PAUSED for frame in played.of(asked.slot)), len(pauses), "pauses")
    judge.equal(played.text(asked.slot, epoch=asked.epoch), first.answer, f"text of {asked}", source="what the weights are known to say")


@claim("duplex.conversation.text_of_tokens", source="protocol: text is the piece of this frame, tokens the frame's, the text's first")
@requires(Duplex.TEXT)
@requires(Duplex.TOKENS)
def test_text_of_tokens(stage: Stage, judge: Judge, workload: Workload) -> None:
    """A frame's text is that of its own text token: what one token says it says in every frame, spaces aside."""
    engine, asked, slot = stage.engine, question(stage), workload.recycled
    begins = engine.prefill_ticks(Session())
    ticks = begins + asked.ticks(engine.sample_rate, engine.frame_size) + workload.known_ticks
    played = stage.play(Script(ticks, (Silence(),) * engine.slots).at(0, Recycle(slot, Session(), asked)))
    said: dict[int, str | None] = {}
    frames = [frame for frame in played.live(slot, epoch=1) if frame.tokens is not None]
    judge.taken(len({int(frame.tokens[0]) for frame in frames}) - 1, "text tokens beside the first")
    for number, frame in enumerate(frames):
        token, text = int(frame.tokens[0]), None if frame.text is None else frame.text.strip()
        judge.equal(text, said.setdefault(token, text), f"text of token {token} in frame {number}", source="an earlier frame")


@claim("duplex.conversation.full_scale", source="protocol: audio is between -1 and 1; what is loud is where it can fail")
@requires(Duplex.KNOWN_ANSWERS)
def test_full_scale(stage: Stage, judge: Judge, dialogues: Sequence[Dialogue]) -> None:
    """An answer's loudest sample stays within full scale, and is louder than what the slot gives before it is asked."""
    first = next(dialogue for dialogue in dialogues if dialogue.answer)
    script, [asked] = conversations(stage, [first])
    frames = stage.kept(script).live(asked.slot, epoch=asked.epoch)
    peaks = [float(frame.audio.abs().max()) for frame in frames if frame.audio is not None]
    judge.taken(len(peaks), f"frames of {asked}")
    judge.figure("peak", max(peaks), "of full scale", 1.0)
    judge.demand(max(peaks) <= 1, got=f"a peak of {max(peaks):.3f} in {asked}", expected="at most 1")
    judge.taken(int(max(peaks) > peaks[0]), f"sound of {asked}")


def _check_answers(stage: Stage, dialogues: Sequence[Dialogue]) -> None:
    """Each gives exactly its text."""
    __tracebackhide__ = True
    stage.judge.taken(len(dialogues), "dialogues of this kind that the engine names")
    script, held = conversations(stage, dialogues)
    played = stage.play(script)
    for asked in held:
        text = played.text(asked.slot, epoch=asked.epoch)
        stage.judge.equal(text, asked.dialogue.answer, f"text of {asked}", source="what the weights are known to say")
