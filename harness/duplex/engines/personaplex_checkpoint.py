"""A synthetic PersonaPlex checkpoint: a directory laid out as the hub has nvidia/personaplex-7b-v1, with weights made here."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import torch

from harness.duplex.engines import streamed_safetensors
from harness.duplex.engines.personaplex_codec import codec
from harness.duplex.engines.personaplex_pieces import write_tokenizer
from harness.duplex.engines.personaplex_sizes import AUDIO_CARD, RING, ROWS, SIZES, Size
from harness.duplex.engines.personaplex_weights import language_model

VERSION = 2
"""Of what this builder makes: raised with every change of it, so that no older directory is taken for a new one."""
SEED = 20
"""Of the weights. Not the run's: a run under another seed is still a run of the same model."""
MODEL = "model.safetensors"
CODEC = "tokenizer-e351c8d8-checkpoint125.safetensors"
TOKENIZER = "tokenizer_spm_32k_3.model"
VOICES = "voices.tgz"
VOICE_NAMES = ("NATF2.pt", "NATM1.pt")
"""The engine's default first."""


def build(directory: Path, size: Size, seed: int = SEED) -> None:
    """Write the four files into `directory`, which is made; files of these names are replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(directory / TOKENIZER)
    write_voices(directory / VOICES, size, seed)
    streamed_safetensors.write(directory / CODEC, codec(size.codec, seed))
    streamed_safetensors.write(directory / MODEL, language_model(size, seed))


def write_voices(path: Path, size: Size, seed: int = SEED) -> None:
    """Of each voice `embeddings` bf16[voice_ticks, 1, 1, hidden] and `cache` i64[1, ROWS, RING], the staging ring then."""
    with tarfile.open(path, "w:gz") as archive:
        for number, name in enumerate(VOICE_NAMES):
            generator = torch.Generator().manual_seed(seed * 1000 + number)
            cache = torch.randint(AUDIO_CARD, (1, ROWS, RING), generator=generator)
            embeddings = torch.randn(size.voice_ticks, 1, 1, size.hidden, generator=generator).to(torch.bfloat16)
            file = io.BytesIO()
            torch.save({"embeddings": embeddings, "cache": cache}, file)
            member = tarfile.TarInfo(f"voices/{name}")
            member.size = file.tell()
            file.seek(0)
            archive.addfile(member, file)


def cached(size: str, seed: int = SEED) -> Path:
    """The directory of this size on this machine, built where it is missing. Several processes may ask at once: one's work is kept."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay" / "personaplex"
    directory = root / f"v{VERSION}-{size}-seed{seed}"
    if directory.exists():
        return directory
    root.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=root))
    try:
        build(making, SIZES[size], seed)
        making.rename(directory)
    except OSError:
        # A directory that is not empty takes the name of no other: somebody else was first.
        if not directory.exists():
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return directory
