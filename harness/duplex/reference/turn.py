"""One occupant's part in one tick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.duplex.reference.config import MAX_DELAY
from harness.duplex.reference.prompt import NO_EMBEDDING
from harness.duplex.reference.slots import Occupant
from harness.duplex.reference.staging import Mark
from harness.duplex.reference.words import PAD


@dataclass(frozen=True)
class Turn:
    """`mark` is of the frame that the tick completes, which it `delivers` or not; `heard` f32[FRAME_SIZE], None in prefill."""

    slot: int
    row: int
    occupant: Occupant
    mark: Mark
    delivers: bool
    heard: np.ndarray | None

    @property
    def in_prefill(self) -> bool:
        """Whether the tick is one of the system prompt."""
        return self.heard is None

    @property
    def is_behind_the_voice(self) -> bool:
        """Whether the voice's embeddings have just come to their end."""
        return self.in_prefill and self.occupant.position == self.occupant.prompt.voice_ticks

    @property
    def control(self) -> tuple[int, ...]:
        """What the row is told, in the order of `tick.Field`."""
        occupant, prefill = self.occupant, self.in_prefill
        position, prompt = occupant.position, occupant.prompt
        embedding, text = (prompt.embedding(position), prompt.texts[position]) if prefill else (NO_EMBEDDING, PAD)
        return 1, not prefill, self.delivers, prefill, min(position, MAX_DELAY), occupant.cursor, embedding, text
