"""`recycle_slot` takes -1 for the last slot, and True for all of them.

The index goes into tensors as it is. -1 ends the conversation of slot B - 1; True is a mask there, so that every row's delay ring and local
clock are begun anew while only the caller of one is waiting for its prefill.

Shows in vllm-omni 0.28.0. Expected: an error for what is no slot's number, and no slot touched.
Exits 0 while it shows, 1 once it does not.
"""

import sys

import torch
from vllm_omni.experimental.fullduplex.personaplex.config import PersonaPlexConfig
from vllm_omni.experimental.fullduplex.personaplex.runtime import PersonaPlexEngine
from vllm_omni.model_executor.models.personaplex.personaplex_temporal import PersonaPlexTemporalStreaming

SLOTS, ROWS, RING = 4, 17, 4


def talking() -> PersonaPlexEngine:
    """An engine in mid-conversation: the state that `load` and some ticks leave, with a small temporal transformer."""
    engine = PersonaPlexEngine(PersonaPlexConfig(batch_size=SLOTS, device="cpu"))
    engine._temporal = PersonaPlexTemporalStreaming(dim=16, num_layers=1, num_heads=2, hidden=16, context=8, text_card=32)
    engine._temporal.streaming_init(SLOTS)
    engine._initial = torch.tensor([32000] + [2048] * (ROWS - 1))
    engine._cache = torch.full((SLOTS, ROWS, RING), 7)
    engine._provided = torch.ones(SLOTS, ROWS, RING, dtype=torch.bool)
    engine._local = torch.full((SLOTS,), 50)
    return engine


def begun_anew(slot: object) -> list[int]:
    """Which slots have lost their conversation after `recycle_slot(slot)`; none where it is refused."""
    engine = talking()
    try:
        engine.recycle_slot(slot)
    except (IndexError, TypeError, ValueError) as refused:
        print(f"recycle_slot({slot!r}): {type(refused).__name__}: {refused}")
    return [row for row in range(SLOTS) if engine._local[row] == 0]


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    wrong = {repr(slot): begun_anew(slot) for slot in (-1, True)}
    for slot, rows in wrong.items():
        print(f"recycle_slot({slot}) began slots {rows} anew")
    return any(wrong.values())


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
