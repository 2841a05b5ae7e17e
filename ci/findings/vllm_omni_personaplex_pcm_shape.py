"""`step_batch` takes any shape and dtype that holds the right number of samples: slots hear something else, and nobody is told.

The array is cast and reshaped. [frame, slots] for [slots, frame] makes each slot hear all callers in turn, a sample each; 16-bit samples
are heard 32,768 times too loud.

Shows in vllm-omni 0.28.0. Expected: an error that says which shape and dtype are wanted.
Exits 0 while it shows, 1 once it does not.
"""

import sys

import torch
from vllm_omni.experimental.fullduplex.personaplex.config import PersonaPlexConfig
from vllm_omni.experimental.fullduplex.personaplex.runtime import PersonaPlexEngine

SLOTS = 4


class Heard(Exception):
    """Ends the tick where the encoder would begin."""


class Ear:
    """In the codec's place: keeps what the encoder is given."""

    def encode_frame(self, pcm: torch.Tensor) -> torch.Tensor:
        self.pcm = pcm
        raise Heard


def heard(pcm: torch.Tensor) -> torch.Tensor | None:
    """What the encoder is given of `pcm`; None where it is refused."""
    engine = PersonaPlexEngine(PersonaPlexConfig(batch_size=SLOTS, device="cpu"))
    engine._codec, engine._opened = Ear(), True
    try:
        engine.step_batch(pcm.numpy())
    except Heard:
        return engine._codec.pcm
    except (TypeError, ValueError) as refused:
        print(f"refused: {refused}")
    return None


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    size = PersonaPlexConfig().frame_size
    # Slot s's caller says s + 1 eighths.
    pcm = torch.arange(1, SLOTS + 1)[:, None].repeat(1, size) / 8
    wrong = {"[frame, slots]": pcm.T, "[slots * frame]": pcm.flatten(), "int16": (pcm * 2**15).short(), "float64": pcm.double()}
    taken = {what: heard(bad) for what, bad in wrong.items()}
    for what, got in taken.items():
        if got is not None:
            print(f"{what}: taken; slot 0 hears {sorted(set(got[0].tolist()))}, where its caller says 0.125")
    return any(got is not None for got in taken.values())


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
