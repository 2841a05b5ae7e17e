"""What a slot gives, and when: frames of its own conversation, each once, and one last word."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.duplex.protocol import Frame, Phase
from harness.duplex.reference.slots import Occupant
from harness.duplex.reference.staging import Mark
from harness.duplex.reference.words import Words

TEXT_ROW = 0


@dataclass
class Stream:
    """What one occupant is still to be given: `owed` frames; `ending` once its input has ended. `spoken`: it was given a word."""

    owed: int = 0
    ending: bool = False
    spoken: bool = False


class Outlet:
    """The streams of the occupants, by slot, and of each slot the watermark: the `seq` up to which its occupant was given frames."""

    def __init__(self, slots: int, words: Words) -> None:
        self._words = words
        self.streams: dict[int, Stream] = {}
        self._watermarks = [-1] * slots

    def begin(self, slot: int) -> None:
        """A new occupant: nothing is owed, and its numbers start anew."""
        self.streams[slot] = Stream()
        self.rotate(slot)

    def rotate(self, slot: int) -> None:
        """No frame of the present occupant was given yet."""
        self._watermarks[slot] = -1

    def forget(self, slot: int) -> None:
        """The occupant has left, and is owed nothing."""
        self.streams.pop(slot, None)

    def end_input(self, slot: int) -> None:
        """From now on what is owed is given, then the last word."""
        self.streams.setdefault(slot, Stream()).ending = True

    def staged(self, slot: int, mark: Mark) -> None:
        """The occupant's input of this tick is on its way; a frame of the conversation is owed for it."""
        self.streams[slot].owed += mark.live

    def is_ending(self, slot: int) -> bool:
        """Whether silence is heard instead of the caller."""
        return self.streams[slot].ending

    def is_drained(self, slot: int) -> bool:
        """Whether the input has ended, and everything was given."""
        stream = self.streams[slot]
        return stream.ending and stream.owed <= 0

    def delivers(self, slot: int, occupant: Occupant, mark: Mark) -> bool:
        """Whether the frame that is complete now is to be given: the occupant's own, of its conversation, and not given before."""
        return self.is_of(occupant, mark) and self.passes(mark) and mark.seq > self._watermarks[slot]

    @staticmethod
    def is_of(occupant: Occupant, mark: Mark) -> bool:
        """Whether it is this occupant's: in the slot's ring those of the one before are still on their way."""
        return mark.epoch == occupant.epoch

    @staticmethod
    def passes(mark: Mark) -> bool:
        """Whether the caller was there: not what came of the system prompt, nor of the silence behind the input."""
        return mark.live

    def give(self, slot: int, occupant: Occupant, mark: Mark, tokens: torch.Tensor, audio: torch.Tensor) -> Frame:
        """The complete frame: `tokens` i64[ROWS], `audio` f32[FRAME_SIZE]."""
        stream = self.streams[slot]
        stream.owed -= 1
        self._watermarks[slot] = mark.seq
        return Frame(Phase.LIVE, audio, self._piece(stream, int(tokens[TEXT_ROW])), tokens, occupant.epoch, mark.seq)

    def last_word(self, slot: int, occupant: Occupant, error: str | None = None) -> Frame:
        """DRAINED, or FAILED with its reason; the stream is over."""
        self.forget(slot)
        return Frame(Phase.DRAINED if error is None else Phase.FAILED, epoch=occupant.epoch, error=error)

    def _piece(self, stream: Stream, token: int) -> str | None:
        """The word of a frame; pieces joined are the text, so all but the first begin with a space."""
        word = self._words.word(token)
        if word is None:
            return None
        piece = f" {word}" if stream.spoken else word
        stream.spoken = True
        return piece
