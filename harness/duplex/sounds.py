"""What callers say: frames of audio, each made from its number on the conversation's own clock and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import torch

from harness.duplex.workload import Workload


class Sound(Protocol):
    """A caller's audio. Sounds are equal, and hash alike, where their frames are the same bits."""

    def frame(self, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        """Frame `tick` of the conversation, f32[frame_size]."""
        ...


@dataclass(frozen=True)
class Silence:
    """Zeros."""

    def frame(self, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        return torch.zeros(frame_size)

    def __str__(self) -> str:
        return "silence"


@dataclass(frozen=True)
class Flat:
    """One value throughout."""

    value: float

    def frame(self, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        return torch.full((frame_size,), self.value)

    def __str__(self) -> str:
        return f"{self.value} throughout"


@dataclass(frozen=True)
class Tone:
    """The workload's tone of slot `of`, wherever it is heard."""

    of: int
    workload: Workload = field(default=Workload(), repr=False)

    def frame(self, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        return self.workload.tone(self.of, tick, sample_rate, frame_size)

    def __str__(self) -> str:
        return f"the tone of slot {self.of}"


@dataclass(frozen=True)
class Noise:
    """White noise between -amplitude and amplitude."""

    seed: int
    amplitude: float = 0.5

    def frame(self, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed((self.seed << 20) + tick)
        return (torch.rand(frame_size, generator=generator) * 2 - 1) * self.amplitude

    def __str__(self) -> str:
        return f"noise {self.seed}"


@dataclass(frozen=True)
class Recording:
    """A file at the engine's sample rate, its first channel, padded to whole frames; silence behind it. It starts at frame `start`."""

    path: Path
    start: int = 0

    def frame(self, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        frames = read_frames(self.path, sample_rate, frame_size)
        here = tick - self.start
        return frames[here].clone() if 0 <= here < len(frames) else torch.zeros(frame_size)

    def ticks(self, sample_rate: int, frame_size: int) -> int:
        """Frames until the recording is over."""
        return self.start + len(read_frames(self.path, sample_rate, frame_size))

    def __str__(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Spoiled:
    """Another sound in which one sample of frame `at` is `value`."""

    sound: Sound
    at: int
    value: float

    def frame(self, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        frame = self.sound.frame(tick, sample_rate, frame_size)
        if tick == self.at:
            frame[frame_size // 2] = self.value
        return frame

    def __str__(self) -> str:
        return f"{self.sound} with {self.value} in frame {self.at}"


@dataclass(frozen=True)
class Spliced:
    """A sound whose frame `at` goes on as `behind` from sample `end` on."""

    sound: Sound
    at: int
    end: int
    behind: Sound

    def frame(self, tick: int, sample_rate: int, frame_size: int) -> torch.Tensor:
        frame = self.sound.frame(tick, sample_rate, frame_size)
        if tick == self.at:
            frame[self.end :] = self.behind.frame(tick, sample_rate, frame_size)[self.end :]
        return frame

    def __str__(self) -> str:
        return f"{self.sound} with {self.behind} behind sample {self.end} of frame {self.at}"


@lru_cache(maxsize=16)
def read_frames(path: Path, sample_rate: int, frame_size: int) -> torch.Tensor:
    """The file's first channel, f32[ticks, frame_size], zero-padded to whole frames. Raises ValueError for another sample rate."""
    import sphn

    pcm, rate = sphn.read(str(path))
    if rate != sample_rate:
        raise ValueError(f"{path}: {rate} Hz; the engine hears {sample_rate} Hz")
    mono = torch.from_numpy(pcm[0]).to(torch.float32)
    padded = torch.nn.functional.pad(mono, (0, -len(mono) % frame_size))
    return padded.reshape(-1, frame_size)
