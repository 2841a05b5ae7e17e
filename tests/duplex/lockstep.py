"""A reference engine at its smallest, and sounds for its slots."""

import torch

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.duplex.engines.reference import ReferenceDuplex
from harness.duplex.protocol import Phase
from harness.duplex.workload import Workload

WORK = Workload()


def build(**options):
    """An engine of tiny size on a CPU, not open yet."""
    return ReferenceDuplex.build(EngineConfig("cpu", "cpu", {"size": "tiny", **options}, 0), VirtualClock())


def sound(*ticks):
    """Slot s hears its own tone at its tick ticks[s]: f32[slots, frame_size]."""
    return torch.stack([WORK.tone(slot, tick, 24_000, 1920) for slot, tick in enumerate(ticks)])


def live(frames, slot):
    """The LIVE frames of one slot."""
    return [given[slot] for given in frames if given[slot].phase is Phase.LIVE]


def talk(engine, slot, session, ticks, **step):
    """Recycle the slot and let it hear `ticks` of its tone; its LIVE frames of these ticks."""
    engine.recycle(slot, session)
    for _ in range(engine.prefill_ticks(session)):
        engine.step(torch.zeros(engine.slots, engine.frame_size))
    return live([engine.step(sound(*[tick] * engine.slots), **step) for tick in range(ticks)], slot)


def same(ours, theirs):
    """Whether two lists of LIVE frames carry the same bits, texts and numbers."""
    return len(ours) == len(theirs) and all(
        torch.equal(a.audio, b.audio) and torch.equal(a.tokens, b.tokens) and (a.text, a.seq) == (b.text, b.seq)
        for a, b in zip(ours, theirs, strict=True)
    )
