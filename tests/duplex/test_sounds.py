"""What callers say is made from the frame's number alone, and is as long, as loud and as broken as it says."""

from pathlib import Path

import numpy as np
import pytest
import sphn
import torch

from harness.duplex.sounds import Noise, Recording, Silence, Sound, Spoiled, Tone
from harness.duplex.workload import Workload

RATE, SIZE = 24_000, 1920


@pytest.mark.parametrize("sound", [Silence(), Tone(2), Noise(3), Spoiled(Tone(2), 5, 1.0)], ids=str)
def test_a_frame_is_made_from_its_number_alone(sound: Sound) -> None:
    backwards = [sound.frame(tick, RATE, SIZE) for tick in (5, 4)][::-1]

    assert all(torch.equal(sound.frame(tick, RATE, SIZE), frame) for tick, frame in zip((4, 5), backwards, strict=True))
    assert all(frame.dtype == torch.float32 and frame.shape == (SIZE,) for frame in backwards)


def test_a_tone_goes_on_where_its_last_frame_ended() -> None:
    whole = Tone(1).frame(0, RATE, 2 * SIZE)

    assert torch.equal(torch.cat([Tone(1).frame(tick, RATE, SIZE) for tick in (0, 1)]), whole)


def test_a_tone_has_the_frequency_of_its_slot() -> None:
    second = Tone(3, Workload(base_hz=200.0, step_hz=100.0)).frame(0, RATE, RATE)

    assert int(torch.fft.rfft(second).abs().argmax()) == 500


def test_noise_is_another_for_another_seed_and_frame() -> None:
    frames = [Noise(seed).frame(tick, RATE, SIZE) for seed in (1, 2) for tick in (0, 1)]

    assert len({tuple(frame.tolist()) for frame in frames}) == 4
    assert all(float(frame.abs().max()) <= 0.5 for frame in frames)


def test_a_spoiled_frame_differs_in_one_sample() -> None:
    tone, spoiled = Tone(0), Spoiled(Tone(0), 2, float("nan"))

    assert torch.equal(spoiled.frame(1, RATE, SIZE), tone.frame(1, RATE, SIZE))
    assert int((spoiled.frame(2, RATE, SIZE) != tone.frame(2, RATE, SIZE)).sum()) == 1


def test_a_recording_is_padded_to_whole_frames_and_followed_by_silence(tmp_path: Path) -> None:
    path = tmp_path / "question.wav"
    samples = np.linspace(-0.5, 0.5, SIZE + 100, dtype=np.float32)
    sphn.write_wav(str(path), np.stack([samples, np.zeros_like(samples)]), RATE)
    recording = Recording(path, start=3)
    heard = torch.cat([recording.frame(tick, RATE, SIZE) for tick in range(6)])

    assert recording.ticks(RATE, SIZE) == 5
    assert torch.allclose(heard[3 * SIZE : 3 * SIZE + len(samples)], torch.from_numpy(samples), atol=1e-4)
    assert not heard[: 3 * SIZE].any()
    assert not heard[3 * SIZE + len(samples) :].any()


def test_a_recording_at_another_rate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "question.wav"
    sphn.write_wav(str(path), np.zeros((1, 100), dtype=np.float32), 16_000)

    with pytest.raises(ValueError, match="16000 Hz; the engine hears 24000"):
        Recording(path).frame(0, RATE, SIZE)
