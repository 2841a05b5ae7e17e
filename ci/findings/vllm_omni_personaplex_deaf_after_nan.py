"""One sample that is not finite deafens a PersonaPlex slot for all of its later occupants, until the codec's ring has gone round.

`reset_slot` masks the row's keys and values and leaves them where they are: a masked value has weight 0, and 0 x NaN is NaN. The encoder's
output of that row is NaN from then on, and the nearest vector to NaN is number 0 of every codebook, whatever the caller says.

Shows in vllm-omni 0.28.0. Expected: after `reset_slot` a row gives what it gives after a reset that nothing came before.
Exits 0 while it shows, 1 once it does not.
"""

import sys

import torch
from vllm_omni.model_executor.models.personaplex.personaplex_mimi import _MimiStreamingTransformer

CONTEXT = 8


def encoder() -> _MimiStreamingTransformer:
    """The codec's transformer as the engine makes it, smaller, with two rows."""
    torch.manual_seed(0)
    made = _MimiStreamingTransformer(num_layers=1, dim=16, num_heads=2, context=CONTEXT)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    made.streaming_init(2)
    return made


@torch.no_grad()
def successor(sample: float) -> torch.Tensor:
    """What row 0 gives after a reset, where the caller before it sent `sample` once."""
    transformer = encoder()
    sounds = torch.randn(4, 2, 2, 16, generator=torch.Generator().manual_seed(1))
    before = sounds[0].clone()
    before[0, 0, 0] = sample
    transformer.step(before)
    transformer.reset_slot(0)
    return torch.stack([transformer.step(sound)[0] for sound in sounds[1:]])


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    orderly, other, after_nan = successor(0.1), successor(0.7), successor(float("nan"))
    print(f"the successor does not depend on what a caller said: {torch.equal(orderly, other)}")
    print(f"after NaN it gives {int(after_nan.isnan().sum())} NaN of {after_nan.numel()} values")
    return torch.equal(orderly, other) and bool(after_nan.isnan().any())


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
