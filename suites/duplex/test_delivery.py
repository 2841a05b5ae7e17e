"""What reaches the client: every frame of the conversation, once, in order, whole, and nothing else."""

import torch

from fixtures.duplex import Stage
from fixtures.duplex_owed import check_phases
from harness.core.capabilities import Duplex, requires
from harness.core.claims import claim
from harness.core.judge import Judge
from harness.duplex.driver import Driver, Played, copied
from harness.duplex.protocol import Phase
from harness.duplex.script import DEFAULT, Recycle, Script, Short
from harness.duplex.sounds import Noise
from harness.duplex.wires import OverwritingEngine
from harness.duplex.workload import Workload
from markers import register_ci, register_cuda_ci

register_ci(est_time=2, suite="duplex-cpu")
register_cuda_ci(est_time=20, suite="duplex-h100")


@claim("duplex.delivery.phases", source="spec 1: nothing conversational is recorded in a prefill tick; vllm-omni _step_from_codes")
def test_phases(stage: Stage, workload: Workload) -> None:
    """A session gives its prefill, `delay` ticks of warm-up, and then frames of the conversation; audio, tokens, text in those alone."""
    played = _recycled(stage, workload)

    check_phases(stage, played)
    stage.judge.taken(len(played.live(workload.recycled, epoch=1)), "frames of the recycled session")


@claim("duplex.delivery.audio", source="protocol: f32[frame_size], mono, between -1 and 1, on the CPU")
def test_audio(stage: Stage, judge: Judge, workload: Workload) -> None:
    """Audio is one finite float32 frame on the CPU, between -1 and 1."""
    played, engine = _recycled(stage, workload), stage.engine
    for slot in stage.slots:
        for number, frame in enumerate(played.live(slot)):
            what, audio = f"audio of slot {slot}, its frame {number}", frame.audio
            judge.demand(isinstance(audio, torch.Tensor), got=f"{what}: {type(audio).__name__}", expected="a tensor")
            kind = (tuple(audio.shape), audio.dtype, audio.device.type)
            judge.equal(kind, ((engine.frame_size,), torch.float32, "cpu"), f"{what}: shape, dtype, device")
            peak = audio.abs().max().item()
            # A NaN is no number below 1.
            judge.demand(peak <= 1, got=f"{what}: peak {peak}", expected="finite, at most 1")


@claim("duplex.delivery.tokens", source="protocol: i64[streams]; vllm-omni _step_from_codes sanitises what is no code")
@requires(Duplex.TOKENS)
def test_tokens(stage: Stage, judge: Judge, workload: Workload) -> None:
    """Tokens are one int64 of each stream, on the CPU, none of them negative."""
    played = _recycled(stage, workload)
    for slot in stage.slots:
        for number, frame in enumerate(played.live(slot)):
            what, tokens = f"tokens of slot {slot}, its frame {number}", frame.tokens
            judge.demand(isinstance(tokens, torch.Tensor), got=f"{what}: {type(tokens).__name__}", expected="a tensor")
            kind = (tuple(tokens.shape), tokens.dtype, tokens.device.type)
            judge.equal(kind, ((stage.engine.streams,), torch.int64, "cpu"), f"{what}: shape, dtype, device")
            judge.demand(int(tokens.min()) >= 0, got=f"{what}: {tokens.tolist()}", expected="no negative token")


@claim("duplex.delivery.counted", source="protocol: epoch, seq; vllm-omni#3745 (RFC: epoch fence)")
def test_counted(stage: Stage, workload: Workload) -> None:
    """Each occupant has its epoch, also one that is gone before its first tick, and its frames count from 0 without a gap or a repeat."""
    first, then = workload.recycled, (workload.recycled + 1) % len(stage.slots)
    script = stage.script(at=3, after=4).at(1, Recycle(first), Recycle(first)).at(3, Recycle(then), Recycle(first))
    played = stage.play(script)

    check_phases(stage, played)
    stage.judge.taken(len(played.live(first, epoch=3)), "frames of the third next occupant")


@claim("duplex.delivery.kept", source="protocol: a frame is the client's; engines step in static buffers")
def test_kept(stage: Stage, judge: Judge) -> None:
    """A frame that was handed out is not changed by later ticks, nor by a recycle of its slot."""
    engine, given = stage.engine, []
    engine.open()
    for tick in range(engine.delay + 4):
        if tick == engine.delay + 2:
            engine.recycle(0, DEFAULT)
        pcm = [stage.tone(slot).frame(tick, engine.sample_rate, engine.frame_size) for slot in stage.slots]
        frames = engine.step(torch.stack(pcm))
        given.append((frames, list(map(copied, frames))))

    for tick, (later, then) in enumerate(given):
        for slot in stage.slots:
            stage.same_frame(later[slot], then[slot], f"[tick {tick}, slot {slot}], later", source="the frame when it was given")
    judge.taken(sum(frame.audio is not None for frames, _ in given for frame in frames), "frames with audio")


@claim("duplex.delivery.input_untouched", source="protocol: the engine does not keep or change pcm")
def test_input_untouched(stage: Stage, judge: Judge) -> None:
    """A step leaves the caller's buffer as it is, and does not read it again after it has returned."""
    script = Script(stage.engine.delay + 4, tuple(Noise(slot) for slot in stage.slots))
    if stage.offers(Duplex.VALID_SAMPLES):
        script = script.at(1, Short(0, stage.engine.frame_size // 2))
    untouched = stage.play(script)
    careless = OverwritingEngine(stage.engine)
    overwritten = Driver(careless, script).play()

    for tick, (given, left) in enumerate(careless.buffers):
        judge.same_bits(left, given, f"the buffer of tick {tick} after the step", source="the caller", axes=("slot", "sample"))
    stage.same(overwritten, untouched, stage.slots, source="a run that leaves its buffers alone")
    judge.taken(len(untouched.live(0)), "frames of slot 0")


def _recycled(stage: Stage, workload: Workload) -> Played:
    """A slot is recycled early; the run ends some frames after its prefill."""
    script = stage.script(at=3, after=stage.engine.delay + 4).at(3, Recycle(workload.recycled))
    played = stage.kept(script)
    stage.judge.taken(sum(frame.phase is Phase.LIVE for frames in played.frames for frame in frames), "frames of the conversation")
    return played
