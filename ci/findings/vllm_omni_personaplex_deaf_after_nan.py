"""One sample that is not finite deafens a PersonaPlex slot for its later occupants: 80 seconds of them.

`reset_slot` masks the row's keys and values and leaves them where they are: a masked value has weight 0, and 0 x NaN is NaN. The encoder's
output of that row is NaN from then on, and the nearest vector to NaN is number 0 of every codebook, whatever the caller says. A layer is
given NaN, and caches it, until the ring of the layer before has gone round: eight times 124 ticks. `reset_streaming`, with which
`open_batch` begins all slots anew, leaves them too.

Shows in vllm-omni 0.28.0. Expected: after a reset a row gives what it gives where no NaN came before.
Exits 0 while it shows, 1 once it does not.
"""

import sys

import torch
from vllm_omni.model_executor.models.personaplex.personaplex_mimi import _MimiStreamingTransformer

LAYERS, CONTEXT = 3, 8
"""The engine has 8 layers of 250 positions, two a tick."""


def encoder() -> _MimiStreamingTransformer:
    """The codec's transformer as the engine makes it, smaller, with two rows."""
    torch.manual_seed(0)
    made = _MimiStreamingTransformer(num_layers=LAYERS, dim=16, num_heads=2, context=CONTEXT)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    made.streaming_init(2)
    return made


@torch.no_grad()
def successor(sample: float, reset: str) -> torch.Tensor:
    """What row 0 gives on the ticks after a reset, [ticks, positions, dim], where the caller before it sent `sample` once."""
    transformer = encoder()
    sounds = torch.randn(40, 2, 2, 16, generator=torch.Generator().manual_seed(1))
    transformer.step(sounds[0])
    last = sounds[0].clone()
    last[0, 0, 0] = sample
    transformer.step(last)
    transformer.reset_slot(0) if reset == "reset_slot" else transformer.reset_streaming()
    return torch.stack([transformer.step(sound)[0] for sound in sounds[1:]])


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    wrong = False
    for reset in ("reset_slot", "reset_streaming"):
        orderly, other, after_nan = (successor(sample, reset) for sample in (0.1, 0.7, float("nan")))
        deaf = int(after_nan.isnan().flatten(1).any(1).sum())
        print(f"{reset}: what a caller said is forgotten: {torch.equal(orderly, other)}; after NaN the next one is NaN for {deaf} ticks")
        wrong = wrong or deaf > 0
    return wrong


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
